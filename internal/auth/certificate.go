package auth

import (
	"crypto/x509"
	"encoding/asn1"
	"errors"
	"net/url"
	"slices"
	"strings"
	"time"

	"downlink/internal/certs"
	"downlink/internal/event"
)

// ErrRevocationUnknown says that a certificate can't be judged now, because
// there is no revocation list of its issuer that is recent enough.
var ErrRevocationUnknown = errors.New("it can't be known whether the certificate was revoked; try again later")

// CertificateOptions say how a client certificate names a device.
type CertificateOptions struct {
	Authorities *certs.Authorities
	Field       string // where the name stands: "san-uri", "san-dns" or "cn"
	Form        string // the name, with {device} for the device ID
	OrgUnits    bool   // the subject's organizational units are the device's groups
}

// Certificates identify devices by their client certificates. Safe for
// concurrent use.
type Certificates struct {
	opts          CertificateOptions
	before, after string // of the device ID, in the name
}

// devicePlace stands for the device ID in CertificateOptions.Form.
const devicePlace = "{device}"

// NewCertificates checks the form.
func NewCertificates(o CertificateOptions) (*Certificates, error) {
	c := &Certificates{opts: o}
	var ok bool
	if c.before, c.after, ok = strings.Cut(o.Form, devicePlace); !ok || strings.Contains(c.after, devicePlace) {
		return nil, errors.New("the form of the name in client certificates must have " + devicePlace + " in it, once")
	}
	return c, nil
}

// identify judges the certificates that a peer has shown, of whose first it
// has proven to have the key. It is called for each request, so it doesn't
// matter how long ago the handshake was, or whether it resumed a session.
func (c *Certificates) identify(shown []*x509.Certificate) (Identity, error) {
	proven, err := c.opts.Authorities.Verify(shown, time.Now())
	if err != nil {
		claimed, _ := c.deviceOf(shown[0])
		return Identity{}, claiming(claimed, certificateError(err))
	}
	id := Identity{By: "mtls", Expires: proven.Until, Valid: proven.Stands}
	if id.Device, err = c.deviceOf(shown[0]); err != nil {
		return Identity{}, err
	}
	if c.opts.OrgUnits {
		var why string
		if id.Groups, why = tidy(slices.Clone(shown[0].Subject.OrganizationalUnit)); why != "" {
			return Identity{}, failed(CertificateGroups, "the certificate's organizational unit (OU) "+why)
		}
	}
	return id, nil
}

// certificateError says in our words what the authorities have found.
func certificateError(err error) error {
	switch {
	case errors.Is(err, certs.ErrListUnknown):
		return ErrRevocationUnknown
	case errors.Is(err, certs.ErrRevoked):
		return failed(CertificateRevoked, "the certificate was revoked by its issuer: the device needs a new one")
	case errors.Is(err, certs.ErrExpired):
		return failed(CertificateExpired, "the certificate, or one of those above it, has expired or is not valid yet; it is "+clock(time.Now())+" here")
	default:
		return failed(CertificateUntrusted, "the certificate is not from an authority that this gateway trusts with devices, or not for clients")
	}
}

// deviceOf reads the one name that has the form.
func (c *Certificates) deviceOf(leaf *x509.Certificate) (string, error) {
	device, found := "", 0
	for _, name := range c.names(leaf) {
		if d, ok := c.cut(name); ok {
			device = d
			found++
		}
	}
	if found != 1 {
		return "", failed(CertificateDevice, "the certificate must have exactly one "+fieldName(c.opts.Field)+" of the form that names a device")
	}
	if c.opts.Field == "san-uri" { // a URI can't hold every character as it is
		unescaped, err := url.PathUnescape(device)
		if err != nil {
			unescaped = ""
		}
		device = unescaped
	}
	if event.ValidateDevice(device) != nil {
		return "", failed(CertificateDevice, "what the certificate names is no device ID: 1 to 128 bytes of text that begin with neither * nor @")
	}
	return device, nil
}

func (c *Certificates) names(leaf *x509.Certificate) []string {
	var names []string
	switch c.opts.Field {
	case "san-uri":
		for _, u := range leaf.URIs {
			names = append(names, u.String())
		}
	case "san-dns":
		names = leaf.DNSNames
	case "cn":
		// Subject.CommonName would be the last of several.
		for _, attribute := range leaf.Subject.Names {
			if text, ok := attribute.Value.(string); ok && attribute.Type.Equal(commonName()) {
				names = append(names, text)
			}
		}
	}
	return names
}

// commonName is the attribute id-at-commonName (RFC 5280, appendix A.1).
func commonName() asn1.ObjectIdentifier { return asn1.ObjectIdentifier{2, 5, 4, 3} }

func (c *Certificates) cut(name string) (device string, ok bool) {
	rest, ok1 := strings.CutPrefix(name, c.before)
	device, ok2 := strings.CutSuffix(rest, c.after)
	return device, ok1 && ok2 && device != ""
}

func fieldName(field string) string {
	return map[string]string{
		"san-uri": "URI among its alternative names (SAN)", "san-dns": "DNS name among its alternative names (SAN)", "cn": "common name (CN)",
	}[field]
}
