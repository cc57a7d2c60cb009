package conn

import (
	"bufio"
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/sha256"
	"crypto/tls"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

// A keyChanger asks for new keys on a TLS 1.3 connection, which crypto/tls
// gives a program no way to do.
type keyChanger struct {
	device
	secret []byte // client_application_traffic_secret_N
	seq    uint64 // of the next record under it
}

// openKeyChanger opens a stream whose client can change its keys.
func openKeyChanger(t *testing.T, o *office, path string) *keyChanger {
	t.Helper()
	var log bytes.Buffer
	k := &keyChanger{seq: 1}                                                                                                                      // the request is number 0
	k.device, _ = o.dialWith(t, path, "", &tls.Config{InsecureSkipVerify: true, KeyLogWriter: &log, CurvePreferences: []tls.CurveID{tls.X25519}}) //nolint:gosec // not what is tested here
	if suite := k.Conn.(*tls.Conn).ConnectionState().CipherSuite; suite != tls.TLS_AES_128_GCM_SHA256 {
		t.Skipf("%s was agreed on; this test knows one cipher suite", tls.CipherSuiteName(suite))
	}
	_, line, _ := strings.Cut(log.String(), "CLIENT_TRAFFIC_SECRET_0 ")
	line, _, _ = strings.Cut(line, "\n")
	_, secret, _ := strings.Cut(line, " ")
	var err error
	if k.secret, err = hex.DecodeString(secret); err != nil || len(k.secret) != sha256.Size {
		t.Fatalf("a secret of %d bytes, %v", len(k.secret), err)
	}
	return k
}

// derive is HKDF-Expand-Label (RFC 8446 §7.1) without a context.
func derive(t *testing.T, secret []byte, label string, length int) []byte {
	t.Helper()
	info := binary.BigEndian.AppendUint16(nil, uint16(length))
	info = append(info, byte(len("tls13 ")+len(label)))
	info = append(info, "tls13 "+label+"\x00"...)
	key, err := hkdf.Expand(sha256.New, secret, string(info), length)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// change is the record of one KeyUpdate that asks for the other side's.
func (k *keyChanger) change(t *testing.T) []byte {
	t.Helper()
	block, err := aes.NewCipher(derive(t, k.secret, "key", 16))
	if err != nil {
		t.Fatal(err)
	}
	aead, err := cipher.NewGCM(block)
	if err != nil {
		t.Fatal(err)
	}
	nonce := derive(t, k.secret, "iv", 12)
	for i := range 8 {
		nonce[4+i] ^= byte(k.seq >> (56 - 8*i))
	}
	inner := []byte{24, 0, 0, 1, 1, 22} // KeyUpdate, update_requested; the last byte says "handshake"
	head := []byte{23, 3, 3, 0, byte(len(inner) + aead.Overhead())}
	k.secret, k.seq = derive(t, k.secret, "traffic upd", sha256.Size), 0
	return aead.Seal(head, nonce, inner, head)
}

// changes is so many of them.
func (k *keyChanger) changes(t *testing.T, n int) []byte {
	t.Helper()
	var all []byte
	for range n {
		all = append(all, k.change(t)...)
	}
	return all
}

func secureLight(t *testing.T) *office {
	t.Helper()
	driver, err := NewLight(patient)
	if err != nil {
		t.Fatal(err)
	}
	return openOffice(t, driver, true)
}

// A client may change its keys, and learns in turn which ones are ours.
func TestLightChangesKeys(t *testing.T) {
	o := secureLight(t)
	k := openKeyChanger(t, o, "/a")
	b := o.box(t, "/a")
	if _, err := k.tcp.Write(k.changes(t, 6)); err != nil {
		t.Fatal(err)
	}
	resp, err := http.ReadResponse(bufio.NewReader(k), nil)
	if err != nil {
		t.Fatal(err)
	}
	expect(t, resp.Body, "first\n")
	b.send("event")
	expect(t, resp.Body, "event")
	if _, err := k.tcp.Write(k.changes(t, 6)); err != nil {
		t.Fatal(err)
	}
	b.send("another")
	expect(t, resp.Body, "another")
	b.end()
	expect(t, resp.Body, "bye")
	if err := <-b.closed; err != nil {
		t.Error(err)
	}
}

// A client that changes its keys for ever would hold a writer, and, if it takes
// nothing, pile up our answers. crypto/tls has a bound for it, which isn't
// written down: this holds on to it.
func TestLightEndsWhoChangesKeysForEver(t *testing.T) {
	o := secureLight(t)
	for path, pending := range map[string]string{"/quiet": "", "/blocked": strings.Repeat("x", 16<<20)} {
		k := openKeyChanger(t, o, path)
		b := o.box(t, path)
		b.send(pending)
		_, _ = k.tcp.Write(k.changes(t, 100)) // an error is as good
		if err := <-b.closed; !errors.Is(err, ErrGone) {
			t.Errorf("%s: %v", path, err)
		}
	}
}

// together is a connection that sends what is written to it in one piece, once
// it is let go.
type together struct {
	net.Conn
	kept []byte
	keep bool
}

func (c *together) Write(b []byte) (int, error) {
	if !c.keep {
		return c.Conn.Write(b)
	}
	c.kept = append(c.kept, b...)
	return len(b), nil
}

// What crypto/tls has read with the request isn't in the socket any more, so no
// event tells of it.
func TestLightHearsWhatCameWithTheRequest(t *testing.T) {
	o := secureLight(t)
	tcp, err := net.Dial("tcp", o.server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer tcp.Close()
	under := &together{Conn: tcp}
	c := tls.Client(under, &tls.Config{InsecureSkipVerify: true}) //nolint:gosec // not what is tested here
	if err := c.Handshake(); err != nil {
		t.Fatal(err)
	}
	under.keep = true
	if _, err := io.WriteString(c, "GET /a HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	if err := c.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if err := tcp.SetWriteDeadline(time.Time{}); err != nil { // CloseWrite's has passed
		t.Fatal(err)
	}
	if _, err := tcp.Write(under.kept); err != nil {
		t.Fatal(err)
	}
	if err := <-o.box(t, "/a").closed; !errors.Is(err, ErrGone) {
		t.Error(err)
	}
}

// A connection that ends before anything watches it is only closed.
func TestLightEndsWhatWasNeverWatched(t *testing.T) {
	p, err := newPoller()
	if err != nil {
		t.Fatal(err)
	}
	defer p.close()
	p.remove(&light{fd: 17, slot: -1})
}
