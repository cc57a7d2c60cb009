// Package config owns the gateway's settings: their one list (Config), where
// each value comes from, the rules for it, and the reference that is generated
// from that list. It starts nothing, and the other packages never see it: they
// get plain Options. Its invariant: what Check accepts, the gateway can start
// with, and a secret in a setting is never shown.
//
// A setting has one name in three spellings: --write-timeout on the command
// line, DOWNLINK_WRITE_TIMEOUT in the environment, write_timeout in the file.
// The command line wins over the environment, the environment over the file,
// the file over the default.
package config

import "time"

// Config is every setting of the gateway. The tags are the single source of
// flags, environment, file, help and reference: "help" says what it is and in
// which unit, "allowed" which values it takes (it is executed: see rule.go),
// "price" what more or less of it costs.
type Config struct {
	// File is where the other settings may come from; it isn't one of them.
	File string `name:"config" placeholder:"FILE" help:"Read settings from this YAML file."`

	Listen        string `name:"listen" default:":8080" group:"Listeners" allowed:"an address host:port; without --insecure-no-auth the host must be loopback" help:"Address of the devices' port." price:"An empty host means every interface."`
	BackendListen string `name:"backend-listen" default:"127.0.0.1:9090" group:"Listeners" allowed:"an address host:port" help:"Address of the back end's port: publishing, metrics, profiles." price:"It has no authentication of its own: whoever reaches it can send to every device."`
	Auth          string `name:"auth" default:"none" group:"Listeners" allowed:"one of: none, jwt" help:"How devices prove who they are: not at all (none: ?device= names the device), or by a signed token that names the device (jwt)." price:"none lets anybody who reaches the port be any device."`
	NoAuth        bool   `name:"insecure-no-auth" group:"Listeners" allowed:"true or false" help:"Allow auth none on an address that isn't loopback." price:"Only where something in front decides who may connect."`

	TLSCert string `name:"tls-cert-file" group:"Listeners" allowed:"a readable PEM file, together with tls-key-file" help:"Certificate chain of the devices' port, which speaks TLS then (1.2 or newer; HTTP/2 and HTTP/1.1). Read again when the file changes; connections stay." price:"TLS costs memory for each connection: docs/operate/auth.md has figures."`
	TLSKey  string `name:"tls-key-file" group:"Listeners" allowed:"a readable PEM file, together with tls-cert-file" help:"Key of that certificate."`

	ReadHeaderTimeout time.Duration `name:"read-header-timeout" default:"5s" group:"Listeners" allowed:"100ms to 1m" help:"How long a client may take to send its request's header." price:"More lets slow or hostile clients hold connections that do nothing."`
	ShutdownTimeout   time.Duration `name:"shutdown-timeout" default:"10s" group:"Listeners" allowed:"100ms to 10m" help:"How long requests may take to end after SIGTERM before they are cut." price:"Less than publish_timeout may cut publishers off without an answer."`

	JWTSecret    string        `name:"jwt-hmac-secret-file" group:"Device tokens" allowed:"a readable file with one secret of at least 32 bytes a line" help:"Secrets that HS256, HS384 and HS512 tokens are checked with. Read again when the file changes." price:"Whoever has a secret can be any device."`
	JWTKeys      string        `name:"jwt-public-keys-file" group:"Device tokens" allowed:"a readable PEM file with public keys or certificates" help:"Public keys that RS, PS, ES and EdDSA tokens are checked with. A header kid: in a PEM block names its key. Read again when the file changes."`
	JWKSURL      string        `name:"jwt-jwks-url" shown:"url" group:"Device tokens" allowed:"an https or http URL without user and password" help:"Address of a JSON Web Key Set with public keys, fetched in the background."`
	JWKSCA       string        `name:"jwt-jwks-ca-file" group:"Device tokens" allowed:"a readable PEM file" help:"Certificates that vouch for the server of jwt-jwks-url, instead of the system's."`
	JWKSRefresh  time.Duration `name:"jwt-jwks-refresh" default:"5m" group:"Device tokens" allowed:"1s to 24h" help:"How often the key set is fetched. A token with an unknown kid has it fetched at once, at most every 10 s." price:"A key that is withdrawn, or replaced under its kid, counts until the next fetch."`
	JWKSMaxAge   time.Duration `name:"jwt-jwks-max-age" default:"24h" group:"Device tokens" allowed:"1m to 720h" help:"How long fetched keys count while the key set can't be fetched again." price:"Less refuses devices sooner when the issuer is away; more trusts a withdrawn key longer."`
	JWTIssuers   List          `name:"jwt-issuer" shown:"url" group:"Device tokens" allowed:"a list with commas between; on the command line the flag may be repeated" help:"Accepted issuers (iss). Empty: not checked."`
	JWTAudiences List          `name:"jwt-audience" shown:"url" group:"Device tokens" allowed:"a list with commas between; on the command line the flag may be repeated" help:"Accepted audiences, of which aud must name one. Empty: not checked." price:"Without it a token that the issuer made for another service is accepted too."`
	JWTLeeway    time.Duration `name:"jwt-leeway" default:"10s" group:"Device tokens" allowed:"0 (off), or 1ms to 5m" help:"How far the issuer's clock may differ: a token counts so much longer than exp, and before nbf." price:"A stream ends at exp and this, and up to 5 s later."`
	JWTDevice    string        `name:"jwt-device-claim" default:"sub" group:"Device tokens" allowed:"the name of a claim" help:"Claim that holds the device ID."`
	JWTGroups    string        `name:"jwt-groups-claim" default:"groups" group:"Device tokens" allowed:"the name of a claim" help:"Claim that holds the device's groups: a list of strings, or one string."`
	JWTCookie    string        `name:"jwt-cookie" default:"downlink_token" group:"Device tokens" allowed:"the name of a cookie" help:"Cookie that may hold the token, where neither Authorization nor ?access_token= does." price:"A name that begins with __Host- keeps other sites of the domain from setting it."`

	Log          string        `name:"log" default:"file:downlink-data" secret:"url" group:"Log" allowed:"file:DIR, redis://[user:password@]host[:port][/db] or rediss://… (TLS)" help:"Where events are kept: a directory of this machine, or a Redis that several gateways share." price:"A password is better in DOWNLINK_LOG or the file than on the command line, where other users can see it."`
	Prefix       string        `name:"prefix" default:"pos-ev" group:"Log" allowed:"1 to 64 of the characters A-Z a-z 0-9 . _ : -" help:"Start of every key in Redis: <prefix>:<shard>." price:"Gateways and producers with different prefixes don't see each other."`
	Shards       int           `name:"shards" default:"64" group:"Log" allowed:"1 to 1024" help:"Number of shards, fixed when the log is created." price:"More spreads devices finer, but a broadcast is stored once in each shard."`
	Window       time.Duration `name:"window" default:"15m" group:"Log" allowed:"1s to 168h" help:"How long an event is kept: a device that comes back within it continues where it was." price:"Memory of the log is rate x size x window. Set it alike on all gateways: the shortest one rules."`
	SweepEvery   time.Duration `name:"sweep-interval" default:"5s" group:"Log" allowed:"100ms to 1h" help:"How often the gateway looks for events older than the window." price:"More keeps events longer; less asks the log more often."`
	Failover     string        `name:"failover" default:"cautious" group:"Log" allowed:"one of: cautious, evidence" help:"What devices are told when Redis was replaced and nobody can prove that nothing was lost: cautious resyncs all of them, evidence only those where something is known to be missing." price:"evidence is right only where everybody publishes through gateways."`
	AllowEvict   bool          `name:"allow-eviction" group:"Log" allowed:"true or false" help:"Start although Redis may evict keys (maxmemory-policy other than noeviction)." price:"An evicted stream is a lost window: devices are told to resync."`
	RedisCAFile  string        `name:"redis-ca-file" group:"Log" allowed:"a readable PEM file" help:"Certificates that vouch for the server of a rediss:// log, instead of the system's."`
	RedisCert    string        `name:"redis-cert-file" group:"Log" allowed:"a readable PEM file, together with redis-key-file" help:"Client certificate for a rediss:// log."`
	RedisKey     string        `name:"redis-key-file" group:"Log" allowed:"a readable PEM file, together with redis-cert-file" help:"Key of the client certificate for a rediss:// log."`
	HotWindow    Bytes         `name:"hot-window-bytes" default:"64MiB" group:"Log" allowed:"1MiB to 64GiB" help:"Memory for recent events, over all shards: resumes inside it ask the log nothing. Each shard has its part; an event that is larger is not kept." price:"Less makes more resumes read from the log. An event for all or for a group counts with twice its payload, because its frame is kept too."`
	PublishLimit time.Duration `name:"publish-timeout" default:"5s" group:"Log" allowed:"100ms to 1m" help:"How long a publisher waits at most for the log before it is answered 503." price:"Less than a slow moment of the log makes publishers repeat what was stored."`
	MaxEvent     Bytes         `name:"max-event-bytes" default:"1MiB" group:"Log" allowed:"1B to 64MiB" help:"Largest payload of an event. A larger one is refused with 413." price:"Every device must be able to take one. Set it alike on all gateways."`

	Keepalive    time.Duration `name:"keepalive" default:"20s" group:"Sessions" allowed:"100ms to 10m" help:"How long a quiet connection stays without a byte." price:"Must be shorter than the idle time of every box in between, often 60 s; less costs traffic."`
	WriteTimeout time.Duration `name:"write-timeout" default:"30s" group:"Sessions" allowed:"100ms to 10m" help:"A device that takes no byte for this long is disconnected; it resumes later." price:"More holds dead connections longer; less cuts devices on bad networks."`
	Retry        time.Duration `name:"retry" default:"3s" group:"Sessions" allowed:"10ms to 5m" help:"How long a device waits before it reconnects; each gets its own, spread around this." price:"Less brings a crowd back faster than one gateway may like."`
	Driver       string        `name:"driver" default:"light" group:"Sessions" allowed:"one of: light, ordinary" help:"How connections are written to. light takes HTTP/1.1 connections over from net/http, so that an idle one costs no goroutine and no buffer; HTTP/2 and systems without epoll use ordinary in any case." price:"ordinary costs about ten times the memory; it is there for comparison."`
	Streams      int           `name:"streams-per-device" default:"4" group:"Sessions" allowed:"1 to 1000" help:"Connections that one device may hold in this gateway; one more is refused." price:"Less refuses a device whose dead connections have not yet been noticed."`
	MaxAge       time.Duration `name:"max-connection-age" default:"0s" group:"Sessions" allowed:"0 (off), or 1s to 168h" help:"End connections after about this time, spread, so that devices balance anew over the gateways." price:"Each end is a reconnect."`
	Pending      int           `name:"pending-events" default:"256" group:"Sessions" allowed:"1 to 65536" help:"Events that wait in memory for a slow device; beyond it the device reads on from the log." price:"More costs memory for each slow device; less reads the log more often."`
	PendingBytes Bytes         `name:"pending-bytes" default:"1MiB" group:"Sessions" allowed:"1KiB to 1GiB" help:"Bytes of those events, at most; one event may always wait, whatever its size." price:"As for pending-events."`

	LogLevel  string `name:"log-level" default:"info" group:"Output" allowed:"one of: debug, info, warn, error" help:"Least level that is logged." price:"debug tells of single connections."`
	LogFormat string `name:"log-format" default:"text" group:"Output" allowed:"one of: text, json" help:"Form of the log lines on standard error."`
}
