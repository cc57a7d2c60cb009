package main

import (
	"bytes"
	"fmt"

	"downlink/internal/problem"
)

func errorsPage(string) ([]byte, error) {
	var b bytes.Buffer
	b.WriteString("# Errors of the back end\n\n" + generated)
	b.WriteString("An error is a problem document (RFC 9457, `" + problem.ContentType + "`): `type` names the kind and never changes, `title` and `status` belong to the kind, `detail` says what happened this time, `hint` what to do, `field` which member of the request is at fault. For an event that goes to several shards `ids` lists what was stored and `errors` what wasn't. In a batch each document stands in its line, as `{\"error\":{…}}`.\n\n")
	b.WriteString("A 503 carries `Retry-After`. A request with an idempotency key can always be repeated: it stores what is missing and nothing twice. The exit codes of the program are listed in [command-line.md](command-line.md).\n\n")
	b.WriteString("| kind | status | title |\n| --- | --- | --- |\n")
	for _, k := range problem.Kinds() {
		fmt.Fprintf(&b, "| [%s](#%s) | %d | %s |\n", k.Code, k.Code, k.Status, k.Title)
	}
	for _, k := range problem.Kinds() {
		fmt.Fprintf(&b, "\n## %s\n\n%d · %s · `%s`\n\n%s\n\nWhat to do: %s\n", k.Code, k.Status, k.Title, k.Type(), k.Meaning, k.Hint)
	}
	return b.Bytes(), nil
}
