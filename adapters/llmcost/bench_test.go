package llmcost

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// What a look at a body costs. The hostile ones are 1 MiB.
func BenchmarkFeatures(b *testing.B) {
	conversation := func(n int) []byte {
		return filled(`{"model":"m","max_tokens":2000,"messages":[{"role":"system","content":"S"}`,
			`,{"role":"user","content":"`+strings.Repeat("What is the answer to this, in so many words? ", 20)+`\n"}`, "]}", n)
	}
	for _, test := range []struct {
		name string
		body []byte
	}{
		{"conversation of 4 KiB", conversation(4 << 10)}, {"conversation of 256 KiB", conversation(256 << 10)},
		{"image of 1 MiB", filled(`{"messages":[{"content":"`, "A", `"}]}`, mib)}, {"image of 15 MiB", filled(`{"messages":[{"content":"`, "A", `"}]}`, 15*mib)},
		{"escapes, 1 MiB", filled(`{"messages":[{"content":"`, `\n`, `"}]}`, mib)}, {"spaces, 1 MiB", filled(`{"messages":[`, " ", `]}`, mib)},
		{"escaped keys, 1 MiB", filled(`{"\n":0`, `,"\n":0`, "}", mib)},
		{"escaped key of 1 MiB", filled(`{"\n`, `x\n`, `":0}`, mib)},
	} {
		b.Run(test.name, func(b *testing.B) { look(b, test.body) })
	}
	var names []string
	for name := range hostile {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		b.Run("hostile/"+name, func(b *testing.B) { look(b, hostile[name](mib)) })
	}
	for _, size := range []int{1, 4, 15} {
		b.Run(fmt.Sprintf("hostile/messages of %d MiB", size), func(b *testing.B) { look(b, hostile["messages"](size*mib)) })
	}
}

func look(b *testing.B, body []byte) {
	b.ReportAllocs()
	b.SetBytes(int64(len(body)))
	for b.Loop() {
		_, _ = Features(body)
	}
}

// What decoding a conversation costs, to compare.
func BenchmarkUnmarshal(b *testing.B) {
	body := filled(`{"messages":[{}`, `,{"role":"user","content":"`+strings.Repeat("word ", 200)+`"}`, "]}", 256<<10)
	b.SetBytes(int64(len(body)))
	b.ReportAllocs()
	for b.Loop() {
		var v any
		_ = json.Unmarshal(body, &v)
	}
}
