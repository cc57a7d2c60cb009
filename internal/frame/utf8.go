package frame

import (
	"unicode/utf8"
)

// appendUTF8 decodes as the WHATWG Encoding standard says (§8.1.1): each
// maximal part of an ill-formed sequence becomes one U+FFFD. The library's
// ToValidUTF8 would make one of a whole run.
func appendUTF8(dst, src []byte) []byte {
	if utf8.Valid(src) {
		return append(dst, src...)
	}
	for len(src) > 0 {
		r, size := utf8.DecodeRune(src)
		if r == utf8.RuneError && size <= 1 {
			size = illFormed(src)
		}
		dst = utf8.AppendRune(dst, r)
		src = src[size:]
	}
	return dst
}

// illFormed is the length of the maximal part that src, which begins with no
// valid sequence, could have begun one with; at least 1.
func illFormed(src []byte) int {
	low, high, more := byte(0x80), byte(0xBF), 0
	switch c := src[0]; {
	case 0xC2 <= c && c <= 0xDF:
		more = 1
	case 0xE0 <= c && c <= 0xEF:
		more = 2
	case 0xF0 <= c && c <= 0xF4:
		more = 3
	}
	switch src[0] {
	case 0xE0:
		low = 0xA0 // shorter forms exist
	case 0xED:
		high = 0x9F // surrogates
	case 0xF0:
		low = 0x90
	case 0xF4:
		high = 0x8F // beyond U+10FFFF
	}
	n := 1
	for n <= more && n < len(src) && low <= src[n] && src[n] <= high {
		low, high = 0x80, 0xBF
		n++
	}
	return n
}
