package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"
)

// apiKey lets the generator publish to a Centrifugo of this run.
const apiKey = "bench"

// centrifugo starts a Centrifugo whose devices use its unidirectional SSE
// endpoint, each subscribed to a channel of its own (in a broadcast to one
// common channel) as it connects.
func (s site) centrifugo(d duty) func(*lab) (*target, error) {
	return func(l *lab) (*target, error) {
		if _, err := os.Stat(s.peer("centrifugo")); err != nil {
			return nil, fmt.Errorf("no Centrifugo was built (%w): run scripts/bench-deps", err)
		}
		t := &target{watch: map[string][]int{}}
		redis, err := withRedis(l, d, t)
		if err != nil {
			return nil, err
		}
		addr, err := freeAddr()
		if err != nil {
			return nil, err
		}
		content, err := json.Marshal(centrifugoConfig(d, addr, redis))
		if err != nil {
			return nil, err
		}
		conf, err := l.write("centrifugo.json", string(content))
		if err != nil {
			return nil, err
		}
		p, err := l.start("centrifugo", s.peer("centrifugo"), "--config", conf)
		if err != nil {
			return nil, err
		}
		t.watch["server"] = []int{p.pid}
		t.args, err = centrifugoArgs(l, d, "http://"+addr)
		if err != nil {
			return nil, err
		}
		return t, l.ready(p, answers("http://"+addr+"/health"))
	}
}

// An object is a JSON object of a peer's configuration.
type object = map[string]any

func centrifugoConfig(d duty, addr, redis string) object {
	channel := object{"allow_subscribe_for_client": true, "allow_subscribe_for_anonymous": true}
	if d.resume {
		channel["history_size"], channel["history_ttl"], channel["force_recovery"] = 100, "15m", true
	}
	client := object{"allow_anonymous_connect_without_token": !d.jwt, "ping_interval": "20s", "pong_timeout": "8s"}
	if d.jwt {
		client["token"] = object{"hmac_secret_key": secret}
	}
	conf := object{
		"http_server": object{"address": "127.0.0.1", "port": portOf(addr)},
		"log":         object{"level": "error"},
		"usage_stats": object{"disabled": true},
		"health":      object{"enabled": true},
		"client":      client,
		"channel":     object{"without_namespace": channel},
		"uni_sse":     object{"enabled": true},
		"http_api":    object{"key": apiKey},
	}
	if redis != "" {
		conf["engine"] = object{"type": "redis", "redis": object{"address": "redis://" + redis}}
	}
	return conf
}

func centrifugoArgs(l *lab, d duty, base string) ([]string, error) {
	channel := channelOf(d)
	connect := func(request string) string { return base + "/connection/uni_sse?cf_connect=" + escaped(request) }
	args := []string{
		"--publish-url", base + "/api/publish",
		"--publish-header", "X-API-Key: " + apiKey,
		"--publish-body", `{"channel":"` + channel + `","data":{payload}}`,
	}
	if d.jwt {
		flags, err := tokens(l, `{"sub":"{device}","channels":["`+channel+`"]}`)
		if err != nil {
			return nil, err
		}
		return append(append(args, flags...), "--url", connect(`{"token":"{token}"}`)), nil
	}
	args = append(args, "--url", connect(`{"subs":{"`+channel+`":{}}}`))
	if d.resume {
		args = append(args,
			"--capture", `epoch="epoch":"([^"]+)"`, "--capture", `offset="offset":([0-9]+)`,
			"--resume-url", connect(`{"subs":{"`+channel+`":{"recover":true,"offset":{offset},"epoch":"{epoch}"}}}`))
	}
	return args, nil
}

// placeholders are what the generator fills in; they must reach it unescaped.
var placeholders = []string{"{device}", "{token}", "{offset}", "{epoch}"}

// escaped makes a template fit for a URL's query.
func escaped(template string) string {
	const mark = "\x00"
	for i, p := range placeholders {
		template = strings.ReplaceAll(template, p, fmt.Sprintf("%s%d%s", mark, i, mark))
	}
	template = url.QueryEscape(template)
	for i, p := range placeholders {
		template = strings.ReplaceAll(template, url.QueryEscape(fmt.Sprintf("%s%d%s", mark, i, mark)), p)
	}
	return template
}

// post sends a body and wants a 2xx.
func post(url string, body io.Reader) error {
	client := &http.Client{Timeout: time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Post(url, "application/json", body)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode/100 != 2 {
		return fmt.Errorf("POST %s: %s", url, resp.Status)
	}
	return nil
}
