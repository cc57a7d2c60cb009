package egress

import (
	"bytes"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"hash"
	"net/http"
	"strings"

	"downlink/internal/reload"
	"downlink/internal/strictyaml"
)

type digest = [sha256.Size]byte

// keys are what is shown to devices and how they are checked, as it was read.
// They are never changed.
type keys struct {
	sum        digest // of all files
	plain      *holder
	holders    map[string]*holder
	transports map[digest]*http.Transport // by authorities and client certificate
}

// A holder is who holds a credential.
type holder struct {
	bearer    string
	transport *http.Transport
}

func (k *keys) find(name string) (*holder, error) {
	if name == "" {
		return k.plain, nil
	}
	if h := k.holders[name]; h != nil {
		return h, nil
	}
	return nil, &Error{Stage: Credential, Err: fmt.Errorf("the credential %q isn't in device_credentials_file", clip(name))}
}

// An entry of the file.
type entry struct {
	Name       string `yaml:"name"`
	Bearer     string `yaml:"bearer"`
	BearerFile string `yaml:"bearer_file"`
	CertFile   string `yaml:"cert_file"`
	KeyFile    string `yaml:"key_file"`
}

// Load reads the files again: the authorities, the credentials, and the files
// that they name. It reports whether something has changed. After an error what
// was read before stays in use. Connections whose certificates are as they were
// stay.
func (e *Egress) Load() (changed bool, err error) {
	e.loading.Lock()
	defer e.loading.Unlock()
	r := &reader{sum: sha256.New()}
	ca, err := r.read(e.opts.CAFile)
	if err != nil {
		return false, err
	}
	text, err := r.read(e.opts.CredentialsFile)
	if err != nil {
		return false, err
	}
	entries, err := parseCredentials(e.opts.CredentialsFile, text)
	if err != nil {
		return false, err
	}
	found := make([]material, len(entries))
	for i, one := range entries {
		if found[i], err = r.material(one); err != nil {
			return false, fmt.Errorf("%s can't be used: the credential %q: %w", e.opts.CredentialsFile, clip(one.Name), err)
		}
	}
	before, sum := e.now.Load(), digest(r.sum.Sum(nil))
	if before != nil && before.sum == sum {
		return false, nil
	}
	next, err := e.build(ca, entries, found, before)
	if err != nil {
		return false, err
	}
	next.sum = sum
	e.now.Store(next)
	if before != nil {
		before.closeUnused(next)
	}
	return true, nil
}

func (k *keys) closeUnused(next *keys) {
	for sum, t := range k.transports {
		if next.transports[sum] != t {
			t.CloseIdleConnections()
		}
	}
}

// build makes what is new, and keeps the transports that are as they were.
func (e *Egress) build(ca []byte, entries []entry, found []material, before *keys) (*keys, error) {
	k := &keys{holders: make(map[string]*holder, len(entries)), transports: make(map[digest]*http.Transport)}
	var roots *x509.CertPool
	if e.opts.CAFile != "" {
		roots = x509.NewCertPool()
		if !roots.AppendCertsFromPEM(ca) {
			return nil, fmt.Errorf("%s holds no certificate in PEM form", e.opts.CAFile)
		}
	}
	transport := func(m material) *http.Transport {
		id := sumOf(ca, m.certPEM, m.keyPEM)
		if k.transports[id] == nil && before != nil {
			k.transports[id] = before.transports[id]
		}
		if k.transports[id] == nil {
			k.transports[id] = e.newTransport(roots, m.pair)
		}
		return k.transports[id]
	}
	k.plain = &holder{transport: transport(material{})}
	for i, one := range entries {
		k.holders[one.Name] = &holder{bearer: found[i].bearer, transport: transport(found[i])}
	}
	return k, nil
}

func sumOf(parts ...[]byte) digest {
	h := sha256.New()
	for _, p := range parts {
		one := sha256.Sum256(p)
		_, _ = h.Write(one[:]) // a hash takes everything
	}
	return digest(h.Sum(nil))
}

const (
	// maxFileBytes is room for a token of its own for each of 50,000 devices.
	maxFileBytes       = 16 << 20
	maxCredentialBytes = 128
)

// parseCredentials reads a YAML list. Its errors repeat nothing of the file but
// names: the rest is secret.
func parseCredentials(path string, text []byte) ([]entry, error) {
	if path == "" {
		return nil, nil
	}
	// A file that is being written anew is empty for a moment.
	if len(bytes.TrimSpace(text)) == 0 {
		return nil, fmt.Errorf("%s is empty; a file without credentials holds []", path)
	}
	var entries []entry
	if err := strictyaml.Read(text, &entries); err != nil {
		return nil, fmt.Errorf("%s can't be used: %w; write a list whose entries have name, and bearer, bearer_file, or cert_file and key_file", path, err)
	}
	seen := make(map[string]bool, len(entries))
	for i, one := range entries {
		switch {
		case one.Name == "" || len(one.Name) > maxCredentialBytes:
			return nil, fmt.Errorf("%s can't be used: entry %d has no name of 1 to %d bytes", path, i+1, maxCredentialBytes)
		case seen[one.Name]:
			return nil, fmt.Errorf("%s can't be used: the credential %q stands there twice", path, one.Name)
		}
		seen[one.Name] = true
	}
	return entries, nil
}

// material is what an entry means.
type material struct {
	bearer          string
	pair            *tls.Certificate
	certPEM, keyPEM []byte
}

// A reader reads files, and makes one digest of all that it has read.
type reader struct {
	sum hash.Hash
}

// read is a file's content; of no file it is nothing.
func (r *reader) read(path string) ([]byte, error) {
	if path == "" {
		return nil, nil
	}
	text, err := reload.File(path, maxFileBytes)
	if err != nil {
		return nil, err
	}
	one := sha256.Sum256(text)
	_, _ = r.sum.Write(one[:]) // a hash takes everything
	return text, nil
}

// material reads what an entry names. No secret is in an error.
func (r *reader) material(one entry) (m material, err error) {
	pair := one.CertFile != "" || one.KeyFile != ""
	switch {
	case one.Bearer == "" && one.BearerFile == "" && !pair:
		return m, errors.New("it has neither bearer, nor bearer_file, nor cert_file and key_file")
	case one.Bearer != "" && one.BearerFile != "":
		return m, errors.New("it has both bearer and bearer_file")
	case pair && (one.CertFile == "" || one.KeyFile == ""):
		return m, errors.New("cert_file and key_file belong together")
	}
	m.bearer = one.Bearer
	if one.BearerFile != "" {
		text, err := r.read(one.BearerFile)
		if err != nil {
			return m, err
		}
		m.bearer = strings.TrimSpace(string(text))
	}
	if one.Bearer+one.BearerFile != "" && !validToken(m.bearer) {
		return m, errors.New("its bearer token isn't one: printable characters without spaces")
	}
	if !pair {
		return m, nil
	}
	if m.certPEM, err = r.read(one.CertFile); err != nil {
		return m, err
	}
	if m.keyPEM, err = r.read(one.KeyFile); err != nil {
		return m, err
	}
	both, err := tls.X509KeyPair(m.certPEM, m.keyPEM)
	if err != nil {
		return m, fmt.Errorf("%s with %s: %w", one.CertFile, one.KeyFile, err)
	}
	m.pair = &both
	return m, nil
}

func validToken(text string) bool {
	return text != "" && !strings.ContainsFunc(text, func(r rune) bool { return r <= ' ' || r > '~' })
}
