package station_test

import (
	"context"
	"fmt"
	"time"

	"github.com/headgate-go/headgate/examples/internal/upstream/station"
)

func ExampleStation() {
	s, err := station.New(station.Config{Capacity: 1, Discipline: station.Queue, Service: time.Millisecond})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer s.Close()

	job, err := s.Enter()
	if err != nil {
		fmt.Println(err)
		return
	}
	defer job.Leave() // nothing after Answer
	if err := job.Await(context.Background(), job.Work()); err != nil {
		fmt.Println(err)
		return
	}
	job.Answer()
	fmt.Println(s.Stats().Completed, "answered after", s.Stats().Work)
	// Output: 1 answered after 1ms
}
