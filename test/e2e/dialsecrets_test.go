package e2e

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
)

// TestDialTellsNoSecrets: devices that send back what they were asked, as an answer
// or unasked after one, get nothing of it into what people and logs are told.
func TestDialTellsNoSecrets(t *testing.T) {
	t.Parallel()
	onlyOnce(t)
	const secret = "s3cret-of-a-device"
	echo, chatter := answerRaw(t, func(c net.Conn, request string) {
		_, _ = io.WriteString(c, request)
	}), answerRaw(t, func(c net.Conn, request string) {
		_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"+request)
		_, _ = io.Copy(io.Discard, c)
	})
	dir := t.TempDir()
	list, credentials := filepath.Join(dir, "devices.csv"), filepath.Join(dir, "credentials.yml")
	write(t, list, fmt.Sprintf("id,url,credential\necho,http://%s/?token=%s,c\nchatter,http://%s/?token=%s,c\n", echo, secret, chatter, secret))
	write(t, credentials, "- name: c\n  bearer: "+secret+"\n")
	g := program.StartDialler(t, "--owner", "none", "--inventory", list, "--device-credentials-file", credentials,
		"--dial-schemes", "http", "--dial-allow", "127.0.0.0/8", "--log-level", "debug")
	for range 3 {
		for _, device := range []string{"echo", "chatter"} {
			resp, err := http.Post(g.Backend+"/v1/push", "application/json", strings.NewReader(`{"device":"`+device+`","type":"t","payload":1}`))
			if err != nil {
				t.Fatal(err)
			}
			answer, _ := io.ReadAll(resp.Body)
			_ = resp.Body.Close()
			if strings.Contains(string(answer), secret) {
				t.Errorf("a producer is told %s", answer)
			}
		}
	}
	g.Terminate()
	if strings.Contains(g.Log(), secret) || strings.Contains(g.Log(), "Unsolicited") {
		t.Errorf("the log has what a device said:\n%s", g.Log())
	}
}

// answerRaw answers each connection's first request, of which it gets all but the
// body, by a function.
func answerRaw(t *testing.T, answer func(c net.Conn, request string)) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer func() { _ = c.Close() }()
				in, request := bufio.NewReader(c), ""
				for !strings.HasSuffix(request, "\r\n\r\n") {
					line, err := in.ReadString('\n')
					if err != nil {
						return
					}
					request += line
				}
				answer(c, request)
			}()
		}
	}()
	return l.Addr().String()
}
