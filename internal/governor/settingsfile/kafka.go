package settingsfile

import (
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"downlink/internal/governor/kafkalag"
	"downlink/internal/strictjson"
)

const kafkaName = "kafka"

// A kafkaFile is what stands under kafka.
type kafkaFile struct {
	named   bool
	options kafkalag.Options
	sum     digest // of all that the options were made of; zero: there is nothing
}

// kafka reads what stands under kafka, and the files that it names. No secret is in
// an error.
func (r *reader) kafka(text json.RawMessage) (k kafkaFile, err error) {
	if text == nil {
		return k, nil
	}
	own := &reader{sum: sha256.New()}
	_, _ = own.sum.Write(text) // a hash takes everything
	if k, err = own.parse(text); err != nil {
		return kafkaFile{}, err
	}
	k.named, k.sum = true, own.digest()
	_, _ = r.sum.Write(k.sum[:]) // likewise
	return k, nil
}

func (r *reader) parse(text []byte) (k kafkaFile, err error) {
	o := &k.options
	var secure json.RawMessage
	var passwordFile string
	if err := members(text, "", map[string]any{
		"brokers": &o.Brokers, "groups": &o.Groups, "tls": &secure,
		"user": &o.User, "password_file": &passwordFile, "mechanism": &o.Mechanism,
	}); err != nil {
		return k, err
	}
	if secure != nil {
		if o.TLS, err = r.secure(secure); err != nil {
			return k, err
		}
	}
	if o.User != "" && o.Mechanism == "" {
		o.Mechanism = kafkalag.ScramSHA512
	}
	switch {
	case passwordFile != "":
		password, err := r.file(passwordFile)
		if err != nil {
			return k, fmt.Errorf("kafka.password_file: %w", err)
		}
		if o.Password = strings.TrimRight(string(password), "\r\n"); o.Password == "" {
			return k, fmt.Errorf("kafka.password_file: %s is empty", passwordFile)
		}
	case o.User != "":
		return k, errPassword
	}
	return k, nil
}

var errPassword = errors.New("kafka.user needs kafka.password_file: a password stands in a file of its own")

// secure is the TLS configuration for the brokers.
func (r *reader) secure(text []byte) (*tls.Config, error) {
	c := &tls.Config{MinVersion: tls.VersionTLS12}
	var ca, cert, key string
	if err := members(text, "tls.", map[string]any{"ca_file": &ca, "cert_file": &cert, "key_file": &key, "server_name": &c.ServerName}); err != nil {
		return nil, err
	}
	if ca != "" {
		pem, err := r.file(ca)
		if err != nil {
			return nil, fmt.Errorf("kafka.tls.ca_file: %w", err)
		}
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("kafka.tls.ca_file: %s holds no certificate in PEM form", ca)
		}
	}
	if (cert == "") != (key == "") {
		return nil, errors.New("kafka.tls.cert_file and kafka.tls.key_file belong together")
	}
	if cert == "" {
		return c, nil
	}
	certPEM, err := r.file(cert)
	if err != nil {
		return nil, fmt.Errorf("kafka.tls.cert_file: %w", err)
	}
	keyPEM, err := r.file(key)
	if err != nil {
		return nil, fmt.Errorf("kafka.tls.key_file: %w", err)
	}
	pair, err := tls.X509KeyPair(certPEM, keyPEM)
	if err != nil {
		return nil, fmt.Errorf("kafka.tls: %s with %s: %w", cert, key, err)
	}
	c.Certificates = []tls.Certificate{pair}
	return c, nil
}

// members reads an object under kafka.
func members(text []byte, at string, into map[string]any) error {
	err := strictjson.Read(text, into)
	if wrong, ok := errors.AsType[*strictjson.Error](err); ok {
		if wrong.Member == "" {
			return fmt.Errorf("kafka%s must hold settings", strings.TrimSuffix("."+at, "."))
		}
		if at == "" && wrong.Member == "password" {
			return errPassword
		}
		return fmt.Errorf("kafka.%s%s %s", at, wrong.Member, wrong.Fault)
	}
	return err
}
