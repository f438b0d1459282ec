// Package llmcost takes what a call to a model is priced by from the call's JSON body,
// for a tenants' gate:
//
//	r, err := httpgate.Acquire(w, r, hg.Tenants, gate.Request{Cost: llmcost.Price(body)})
//
// It is asked in a handler that has the whole body in memory, behind the gate that admits
// bytes. The Cost of a middleware is asked before the body is read, and has none.
//
// # Bodies
//
// Four shapes are known, and are not told apart: whatever a body has of these counts.
//
//	            OpenAI chat            OpenAI Responses   Anthropic messages  Gemini
//	Tokens      max_completion_tokens, max_output_tokens  max_tokens          maxOutputTokens
//	            max_tokens
//	Messages    messages               input              messages            contents
//	  and one                          instructions       system              systemInstruction
//	Tools       tools, functions       tools              tools               tools, functionDeclarations
//	N           n                                                             candidateCount
//	Stream      stream                 stream             stream              -
//
// So one conversation has the same Messages in all of them. Gemini's numbers stand in
// generationConfig, as a rule, and its body may be wrapped in a field "request".
// A tool of Gemini's counts as its functions, or as one; tools and functions add up.
//
// Three things are not in the body, and are for the caller to set in the [Features]:
// Stream of a Gemini call, which is in the path; Tokens where none are declared, if the
// default of the model is known (they stay 0 here, and are never derived from bytes);
// Messages of a conversation that the server keeps.
//
// # What can be read in two ways
//
// Servers differ in what they take, and who pays by a body must not choose the reading.
// So the dearer counts:
//
//   - Of a field that is there twice, or under several names, the largest.
//   - Names are taken in camelCase and in snake_case, in upper and in lower case, with
//     escapes or without.
//   - A number may be a string that holds one. A fraction is rounded up. Negative, or
//     null, is as if it were not there. Anything else, a number beyond int64, and one
//     longer than 64 bytes count as math.MaxInt64, which costs [lanes.MaxPrice].
//   - In place of a list, null is empty and anything else is one.
//   - A stream, which is cheaper, is one only if "stream" is true and nothing else.
//
// What is no JSON (a byte order mark, NaN, a comma too many, a second value) costs
// lanes.MaxPrice, as does what is hostile: some server may read more in it. Text that is
// not UTF-8 is let pass. A handler does better to answer what has an error with 400, and
// not to ask about bodies of another content type. A controller whose MaxLimit is below
// lanes.MaxPrice refuses such a cost at once.
//
// # Bounds
//
// A body is read once, from its start. One that is nested deeper than 128, or holds more
// than 65,536 values (the body, and each value in its lists and objects), is
// hostile, and is left right there. One of more than 994 x 16 KiB (15.5 MiB) costs
// lanes.MaxPrice by its length and is not looked at. So the work has a bound whatever
// comes: that many values, and the search for the ends of strings and of spaces.
//
// A look at a body allocates once. Keys that are written with escapes are copied, which
// takes up to about three times their length and is garbage after the look.
// There is no state: all functions may be called at any time by anyone.
package llmcost
