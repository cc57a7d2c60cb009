package results

import "io"

// WriteHTML writes the page.
func (r *Report) WriteHTML(w io.Writer) error { return r.WriteJSON(w) }
