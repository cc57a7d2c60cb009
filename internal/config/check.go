package config

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"time"

	"downlink/internal/eventlog/redisurl"
)

var (
	prefixForm     = regexp.MustCompile(`^[A-Za-z0-9._:-]{1,64}$`)
	durabilityForm = regexp.MustCompile(`^(primary|replicas:[1-9])$`)
)

// Check reports all problems of a configuration at once, as Problems: values
// that could not be read, values that aren't allowed, and values that don't go
// together. It reads the named certificate files, and nothing else.
func (l *Loader) Check(c *Config) error {
	problems := append(Problems(nil), l.problems...)
	bad := make(map[string]bool, len(problems))
	for _, p := range problems {
		bad[p.Key] = true // one complaint a setting is enough
	}
	add := func(name, reason string) {
		key := l.known[name]
		if bad[name] || !key.For(l.command) {
			return
		}
		text := format(reflect.ValueOf(c).Elem().Field(key.field))
		problems = append(problems, Problem{Key: name, Value: key.show(text), Origin: l.origin(key), Reason: reason})
		bad[name] = true
	}
	for _, key := range Keys() {
		if !within(key.Allowed, reflect.ValueOf(c).Elem().Field(key.field)) {
			add(key.Name, "isn't allowed; allowed: "+key.Allowed)
		}
		if !key.For(l.command) && l.origin(key).Source == FromFlag {
			problems = append(problems, Problem{Key: key.Name, Origin: l.origin(key), Reason: "is a setting of " + key.owners() + ", and downlink " + l.command + " has no use for it; remove it"})
		}
	}
	c.checkLog(add)
	c.checkPublishers(add)
	c.checkFiles(add)
	switch l.command {
	case Dial:
		c.checkDial(add)
	case Governor:
		c.checkGovernor(add)
	default:
		c.checkListeners(add)
		c.checkIdentity(add)
		c.checkOrigins(add)
		c.checkTokens(add)
	}
	if c.SweepEvery > c.Window && !bad["window"] {
		add("sweep_interval", fmt.Sprintf("is longer than window (%s); choose at most that", formatDuration(c.Window)))
	}
	if least := c.DrainWait + c.ShutdownTimeout + closingTime; l.command == Serve && c.DrainDeadline < least && !bad["drain_wait"] && !bad["shutdown_timeout"] {
		add("drain_deadline", fmt.Sprintf("leaves no time to close connections: drain_wait (%s) and shutdown_timeout (%s) are part of it; choose at least %s, or make one of them shorter",
			formatDuration(c.DrainWait), formatDuration(c.ShutdownTimeout), formatDuration(least)))
	}
	if len(problems) == 0 {
		return nil
	}
	return problems
}

// closingTime is how much of drain_deadline must be left for closing connections.
const closingTime = 500 * time.Millisecond

// Warnings are what is allowed and yet likely to be regretted, one sentence
// each, and settings in the environment that nobody reads.
func (l *Loader) Warnings(c *Config) []string {
	warnings := l.idle(c)
	switch l.command {
	case Dial:
		warnings = append(warnings, c.dialWarnings()...)
	case Serve:
		warnings = append(warnings, c.deviceWarnings()...)
	}
	warnings = append(warnings, c.publisherWarnings(l.command)...)
	for _, name := range l.strayVariables() {
		warnings = append(warnings, name+" is set in the environment but is not a setting"+
			suggest(strings.ToLower(strings.TrimPrefix(name, EnvPrefix)), l.known))
	}
	return warnings
}

// idle names what environment and file set for other commands, which may well
// share them.
func (l *Loader) idle(c *Config) []string {
	var warnings []string
	for _, key := range Keys() {
		if text := format(reflect.ValueOf(c).Elem().Field(key.field)); !key.For(l.command) && l.origin(key).Where != "" && text != key.Default {
			warnings = append(warnings, fmt.Sprintf("%s (%s) is a setting of %s: it has no effect here", key.Name, l.origin(key), key.owners()))
		}
	}
	return warnings
}

// deviceWarnings are about who connects to the devices' port.
func (c *Config) deviceWarnings() []string {
	var warnings []string
	if host, _, err := net.SplitHostPort(c.Listen); err == nil && c.NoAuth && c.Uses("none") && !loopback(host) {
		warnings = append(warnings, fmt.Sprintf("listen %s with auth none: whoever reaches this port can be any device", c.Listen))
	}
	return append(warnings, c.identityWarnings()...)
}

func (c *Config) checkListeners(add func(name, reason string)) {
	host, err := splitAddress(c.Listen)
	switch {
	case err != nil:
		add("listen", err.Error())
	case c.Uses("none") && !c.NoAuth && !loopback(host):
		add("listen", "can be reached from outside while auth is none, so that anybody could be any device; "+
			"use --listen 127.0.0.1:8080 to try things out on this machine, or say --insecure-no-auth if something in front decides who may connect")
	}
	if c.Listen == c.BackendListen && !strings.HasSuffix(c.Listen, ":0") {
		add("backend_listen", "is the devices' address (listen) too; devices must not reach the back end, give it another port")
	}
}

func splitAddress(address string) (host string, err error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return "", errors.New("isn't an address; write host:port, as in 127.0.0.1:8080, :8080 or [::1]:8080")
	}
	if _, err := strconv.ParseUint(port, 10, 16); err != nil {
		return "", errors.New("has no usable port; allowed: 1 to 65535, or 0 for any free one")
	}
	if strings.ContainsAny(host, " /@") {
		return "", errors.New("isn't an address; write host:port without scheme and path")
	}
	return host, nil
}

// loopback says whether only this machine reaches a host. A name other than
// localhost might resolve to anything, so it isn't.
func loopback(host string) bool {
	if strings.EqualFold(host, "localhost") {
		return true
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.Unmap().IsLoopback()
}

func (c *Config) checkLog(add func(name, reason string)) {
	if !prefixForm.MatchString(c.Prefix) {
		add("prefix", "isn't allowed; allowed: 1 to 64 of the characters A-Z a-z 0-9 . _ : -")
	}
	scheme, rest, _ := strings.Cut(c.Log, ":")
	switch scheme {
	case "file":
		if rest == "" || strings.ContainsRune(rest, 0) {
			add("log", "names no directory; write file:DIR, for example file:downlink-data")
		}
	default:
		if !strings.HasPrefix(scheme, "redis") {
			add("log", "isn't a log; allowed: file:DIR, or a URL "+redisurl.Forms)
		} else if _, err := redisurl.Parse(c.Log); err != nil {
			add("log", "isn't accepted: "+err.Error())
		}
	}
	if !durabilityForm.MatchString(c.Durability) {
		add("durability", "isn't allowed; allowed: primary, or replicas:N with N from 1 to 9")
	}
	if scheme == "file" && c.Replicas() > 0 {
		add("durability", "is for a log on Redis; the embedded log has no replicas")
	}
	if scheme == "file" && c.ReadFrom == "replica" {
		add("read_from", "is for a log on Redis; the embedded log has no replicas")
	}
	if !redisurl.Secure(c.Log) && c.RedisCAFile+c.RedisCert+c.RedisKey != "" {
		add("log", "is used without TLS, but a redis_…_file is set; write rediss:// or remove the file settings")
	}
}

// Replicas is how many replicas must have an event before it is accepted.
func (c *Config) Replicas() int {
	n, _ := strconv.Atoi(strings.TrimPrefix(c.Durability, "replicas:")) // primary: none
	return n
}

func (c *Config) checkFiles(add func(name, reason string)) {
	checkFile := func(name, path string) {
		if path == "" {
			return
		}
		if info, err := os.Stat(path); err != nil || info.IsDir() {
			add(name, "can't be read: there is no such file")
		} else if !info.Mode().IsRegular() {
			// Opening a pipe would wait for its writer, each time that files are read again.
			add(name, "can't be read again and again: it is a pipe or a device, not a file")
		} else if f, err := os.Open(path); err != nil {
			add(name, "can't be read: the gateway's user may not open it")
		} else {
			_ = f.Close() // opened for reading only
		}
	}
	checkFile("inventory_token_file", c.InvToken)
	checkFile("inventory_ca_file", c.InvCA)
	checkFile("device_credentials_file", c.DeviceCreds)
	checkFile("device_ca_file", c.DeviceCA)
	checkFile("redis_ca_file", c.RedisCAFile)
	checkFile("redis_cert_file", c.RedisCert)
	checkFile("redis_key_file", c.RedisKey)
	checkFile("tls_cert_file", c.TLSCert)
	checkFile("tls_key_file", c.TLSKey)
	checkFile("jwt_hmac_secret_file", c.JWTSecret)
	checkFile("jwt_public_keys_file", c.JWTKeys)
	checkFile("jwt_jwks_ca_file", c.JWKSCA)
	checkFile("device_tokens_file", c.DeviceTokens)
	checkFile("tls_client_ca_file", c.ClientCAs)
	checkFile("tls_client_crl_file", c.ClientCRLs)
	checkFile("governor_file", c.GovernorFile)
	checkFile("ticket_secret_file", c.TicketSecret)
	checkFile("publishers_file", c.Publishers)
	checkFile("backend_jwt_hmac_secret_file", c.BackendSecret)
	checkFile("backend_jwt_public_keys_file", c.BackendKeys)
	checkFile("backend_tls_cert_file", c.BackendTLSCert)
	checkFile("backend_tls_key_file", c.BackendTLSKey)
	checkPair := func(cert, certPath, key, keyPath string) {
		switch {
		case certPath != "" && keyPath == "":
			add(cert, "needs "+key+" too")
		case certPath == "" && keyPath != "":
			add(key, "needs "+cert+" too")
		}
	}
	checkPair("redis_cert_file", c.RedisCert, "redis_key_file", c.RedisKey)
	checkPair("tls_cert_file", c.TLSCert, "tls_key_file", c.TLSKey)
	checkPair("backend_tls_cert_file", c.BackendTLSCert, "backend_tls_key_file", c.BackendTLSKey)
}
