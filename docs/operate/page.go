// Package operate owns the operator's pages as far as programs show them: what
// to do about a word is written once, in troubleshooting.md. It adds nothing to
// the page. Its invariant: what is shown is what stands there.
package operate

import (
	_ "embed"
	"regexp"
	"strings"
)

//go:embed troubleshooting.md
var troubleshooting string

// Advice is what the troubleshooting page says about a word, as plain paragraphs;
// empty if the word isn't a heading there.
func Advice(word string) []string {
	_, section, found := strings.Cut(troubleshooting, "\n### "+word+"\n")
	if !found || word == "" {
		return nil
	}
	section, _, _ = strings.Cut(section, "\n#")
	var paragraphs []string
	for paragraph := range strings.SplitSeq(section, "\n\n") {
		if text := plain(paragraph); text != "" {
			paragraphs = append(paragraphs, text)
		}
	}
	return paragraphs
}

// plain is a paragraph without marks; a piece of code keeps its lines.
func plain(paragraph string) string {
	paragraph = strings.Trim(paragraph, "\n")
	if strings.HasPrefix(paragraph, "```") {
		return strings.Trim(strings.Trim(paragraph, "`"), "\n")
	}
	text := strings.Join(strings.Fields(paragraph), " ")
	text = regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`).ReplaceAllString(text, "$1")
	return strings.NewReplacer("`", "", "**", "").Replace(text)
}
