package gate_test

import (
	"context"
	"fmt"

	"github.com/headgate-go/headgate/core/gate"
)

// A gate keeps what it knows of one logical call in the context, for the retries.
func ExampleWithTicket() {
	type attempts struct{ n int }
	ctx := gate.WithTicket(gate.WithClass(context.Background(), gate.Bulk), &attempts{})
	for range 3 {
		class, ticket := gate.Inherited(ctx)
		ticket.(*attempts).n++
		fmt.Println(class, ticket.(*attempts).n)
	}
	// Output:
	// bulk 1
	// bulk 2
	// bulk 3
}
