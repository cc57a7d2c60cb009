package main

import (
	"fmt"
	"os"
	"strings"
)

// nchanModule is where Debian's package puts the module.
const nchanModule = "/usr/lib/nginx/modules/ngx_nchan_module.so"

// nchanConfig is how a good operator would run Nchan on this machine: a worker
// for each core with an accept queue of its own (without reuseport the rounds
// lay wider apart, at the same cost), no access log, memory and buffers that
// the load doesn't exceed, pings as often as Downlink's.
const nchanConfig = `load_module %[1]s;
%[2]s
worker_processes 2;
worker_rlimit_nofile 20000;
daemon off;
pid %[3]s/nginx.pid;
error_log %[3]s/error.log warn;
events { worker_connections 19000; }
http {
  access_log off;
  client_body_temp_path %[3]s/body;
  proxy_temp_path %[3]s/proxy;
  fastcgi_temp_path %[3]s/fastcgi;
  uwsgi_temp_path %[3]s/uwsgi;
  scgi_temp_path %[3]s/scgi;
  keepalive_requests 1000000000;
  nchan_shared_memory_size 1024m;
  nchan_message_buffer_length %[4]d;
  nchan_message_timeout 15m;
  %[5]s
  server {
    listen %[6]s reuseport;
    location = /sub {
      nchan_subscriber eventsource;
      nchan_channel_id $arg_id;
      nchan_subscriber_first_message newest;
      nchan_eventsource_ping_interval 20;
      %[7]s
    }
    location = /pub {
      nchan_publisher;
      nchan_channel_id $arg_id;
      %[7]s
    }
  }
}
`

// nchan starts nginx with Nchan. A device is a channel; in a broadcast all
// devices listen to one.
func nchan(d duty) func(*lab) (*target, error) {
	return func(l *lab) (*target, error) {
		if _, err := os.Stat(nchanModule); err != nil {
			return nil, fmt.Errorf("no Nchan on this machine (%w): run scripts/bench-deps", err)
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
		upstream, pass := "", ""
		if redis != "" {
			upstream = "upstream store { nchan_redis_server redis://" + redis + "; nchan_redis_storage_mode distributed; }"
			pass = "nchan_redis_pass store;"
		}
		user := ""
		if os.Geteuid() == 0 {
			user = "user www-data;"
		}
		conf, err := l.write("nginx.conf", fmt.Sprintf(nchanConfig, nchanModule, user, l.dir, nchanBuffer, upstream, addr, pass))
		if err != nil {
			return nil, err
		}
		p, err := l.start("nginx", "nginx", "-p", l.dir, "-c", conf)
		if err != nil {
			return nil, err
		}
		t.watch["server"] = []int{p.pid}
		channel := channelOf(d)
		t.args = []string{
			"--url", "http://" + addr + "/sub?id=" + channel,
			"--publish-url", "http://" + addr + "/pub?id=" + channel,
			"--publish-body", "{payload}",
		}
		if d.resume {
			t.args = append(t.args, "--resume-header", "Last-Event-ID: {id}")
		}
		if redis != "" {
			return t, l.ready(p, publishes("http://"+addr+"/pub?id=warm-up"))
		}
		return t, l.ready(p, dials(addr))
	}
}

// nchanBuffer is how many messages a channel keeps: more than a device misses
// in any table.
const nchanBuffer = 100

func channelOf(d duty) string {
	if d.broadcast {
		return "all"
	}
	return "{device}"
}

// publishes is ready when a message is taken: Nchan listens before it has
// reached Redis.
func publishes(url string) func() error {
	return func() error { return post(url, strings.NewReader(`{}`)) }
}
