package main

import (
	"fmt"
	"net"
	"net/http"
	"os/exec"
	"strings"
)

// pushpinConfig is Debian's default with its sockets in the lab's directory,
// and the limits raised that would throttle a broadcast or these connections.
const pushpinConfig = `[global]
include=/usr/lib/pushpin/internal.conf
rundir=%[1]s
ipc_prefix=p-
port_offset=0
stats_connection_ttl=120

[runner]
services=condure,pushpin-proxy,pushpin-handler
http_port=%[2]s
logdir=%[1]s
log_level=1
client_buffer_size=8192
client_maxconn=19000

[proxy]
routesfile=routes
sig_key=changeme
updates_check=off
zurl_out_specs=ipc://%[1]s/zurl-in
zurl_out_stream_specs=ipc://%[1]s/zurl-in-stream
zurl_in_specs=ipc://%[1]s/zurl-out

[handler]
push_in_spec=ipc://%[1]s/push-in
push_in_http_addr=127.0.0.1
push_in_http_port=%[3]s
push_in_http_max_headers_size=10000
push_in_http_max_body_size=1000000
push_in_sub_specs=ipc://%[1]s/push-sub
command_spec=ipc://%[1]s/command
stats_spec=ipc://%[1]s/stats
message_rate=1000000
message_hwm=1000000
message_wait=5000
connection_subscription_max=20
stats_format=tnetstring
`

// zurlConfig lets Pushpin's client of the back end reach a loopback address,
// which Debian's default denies.
const zurlConfig = `[General]
in_spec=ipc://%[1]s/zurl-in
in_stream_spec=ipc://%[1]s/zurl-in-stream
out_spec=ipc://%[1]s/zurl-out
in_req_spec=ipc://%[1]s/zurl-req
ipc_file_mode=660
defpolicy=allow
max_open_requests=2000
buffer_size=200000
timeout=600
in_hwm=1000
out_hwm=1000
`

// pushpin starts Pushpin before a small back end that lets it hold every
// stream. The back end runs in this process and isn't counted.
func pushpin(d duty) func(*lab) (*target, error) {
	return func(l *lab) (*target, error) {
		if _, err := exec.LookPath("pushpin"); err != nil {
			return nil, fmt.Errorf("no Pushpin on this machine (%w): run scripts/bench-deps", err)
		}
		backend, err := serveGrip(l)
		if err != nil {
			return nil, err
		}
		addr, err := freeAddr()
		if err != nil {
			return nil, err
		}
		control, err := freeAddr()
		if err != nil {
			return nil, err
		}
		zurl, runner, err := startPushpin(l, addr, control, backend)
		if err != nil {
			return nil, err
		}
		t := &target{watch: map[string][]int{"server": {zurl.pid, runner.pid}}}
		t.args = []string{
			// With more at once this version drops streams while its proxy hands
			// them to its handler ("received message out of sequence").
			"--connecting", "8",
			"--url", "http://" + addr + "/events?device=" + channelOf(d),
			"--publish-url", "http://" + control + "/publish/",
			"--publish-body", `{"items":[{"channel":"` + channelOf(d) + `","formats":{"http-stream":{"content":"data: {payload_string}\n\n"}}}]}`,
		}
		return t, l.ready(runner, answers("http://"+addr+"/ready"))
	}
}

func startPushpin(l *lab, addr, control, backend string) (zurl, runner *process, err error) {
	if _, err = l.write("routes", "* "+backend+"\n"); err != nil {
		return nil, nil, err
	}
	zurlConf, err := l.write("zurl.conf", fmt.Sprintf(zurlConfig, l.dir))
	if err != nil {
		return nil, nil, err
	}
	conf, err := l.write("pushpin.conf", fmt.Sprintf(pushpinConfig, l.dir, addr, portOf(control)))
	if err != nil {
		return nil, nil, err
	}
	if zurl, err = l.start("zurl", "zurl", "--config="+zurlConf); err != nil {
		return nil, nil, err
	}
	runner, err = l.start("pushpin", "pushpin", "--config="+conf)
	return zurl, runner, err
}

// serveGrip is the back end: it answers each request with the instruction to
// hold the stream and subscribe it to the channel that the device names.
func serveGrip(l *lab) (addr string, err error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	server := &http.Server{Handler: http.HandlerFunc(grip)}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.Serve(listener) // until it is closed
	}()
	l.closers = append(l.closers, func() {
		server.Close()
		<-done
	})
	return listener.Addr().String(), nil
}

func grip(w http.ResponseWriter, r *http.Request) {
	if channel := r.URL.Query().Get("device"); channel != "" && !strings.ContainsAny(channel, ",;\r\n") {
		w.Header().Set("Content-Type", "text/event-stream")
		w.Header().Set("Grip-Hold", "stream")
		w.Header().Set("Grip-Channel", channel)
		w.Header().Set("Grip-Keep-Alive", `: ping\n\n; format=cstring; timeout=20`)
	}
	_, _ = fmt.Fprint(w, ": hello\n\n") // a failure is Pushpin's to report
}
