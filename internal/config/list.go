package config

import (
	"reflect"
	"strings"

	"github.com/alecthomas/kong"
)

// List is several texts with commas between.
type List string

// Items are the texts, without the spaces around them; empty ones don't count.
func (l List) Items() []string {
	var items []string
	for item := range strings.SplitSeq(string(l), ",") {
		if item = strings.TrimSpace(item); item != "" {
			items = append(items, item)
		}
	}
	return items
}

// listMapper adds each flag of the command line to those before it.
func listMapper() kong.Mapper {
	return kong.MapperFunc(func(ctx *kong.DecodeContext, target reflect.Value) error {
		var text string
		if err := ctx.Scan.PopValueInto("value", &text); err != nil {
			return err
		}
		if before := target.String(); before != "" {
			text = before + "," + text
		}
		target.SetString(text)
		return nil
	})
}
