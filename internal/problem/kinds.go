package problem

import "net/http"

// A Code names a kind of problem. It ends the document's type and is the
// heading in docs/reference/errors.md; programs compare it, so it never changes.
type Code string

// The kinds of problem.
const (
	InvalidJSON        Code = "invalid-json"
	InvalidEvent       Code = "invalid-event"
	UnknownMember      Code = "unknown-member"
	DuplicateMember    Code = "duplicate-member"
	TooManyDevices     Code = "too-many-devices"
	InvalidIdempotency Code = "invalid-idempotency-key"
	InvalidLimit       Code = "invalid-limit"
	InvalidSetting     Code = "invalid-setting"
	InvalidUse         Code = "invalid-use"
	Unauthorized       Code = "unauthorized"
	Forbidden          Code = "forbidden"
	InvalidOrder       Code = "invalid-order"
	InvalidDevice      Code = "invalid-device"
	CrossOrigin        Code = "cross-origin"
	NotFound           Code = "not-found"
	InvalidTicket      Code = "invalid-ticket"
	TicketsOff         Code = "tickets-off"
	MethodNotAllowed   Code = "method-not-allowed"
	RequestTimeout     Code = "request-timeout"
	Conflict           Code = "idempotency-conflict"
	DrainFinal         Code = "drain-final"
	EventTooLarge      Code = "event-too-large"
	BodyTooLarge       Code = "body-too-large"
	UnsupportedMedia   Code = "unsupported-media-type"
	WrongHost          Code = "wrong-host"
	TooManyEvents      Code = "too-many-events"
	Internal           Code = "internal"
	KeysUnavailable    Code = "keys-unavailable"
	LogUnavailable     Code = "log-unavailable"
	NotReplicated      Code = "not-replicated"
	LogFull            Code = "log-full"
	LogExhausted       Code = "log-exhausted"
	ShuttingDown       Code = "shutting-down"
	BackendFull        Code = "back-end-full"
	TooManyFollowers   Code = "too-many-followers"
	TooManyCallers     Code = "too-many-callers"
	NoOpinion          Code = "no-opinion-yet"

	DeviceUnknown        Code = "device-unknown"
	DeviceBusy           Code = "device-busy"
	PushAbandoned        Code = "push-abandoned"
	DeviceRefused        Code = "device-refused"
	DeviceUnreachable    Code = "device-unreachable"
	PushFull             Code = "push-full"
	InventoryUnavailable Code = "inventory-unavailable"
	NoAnswer             Code = "no-answer"
)

// A Kind is a row of the table of problems.
type Kind struct {
	Code    Code
	Status  int    // HTTP status
	Title   string // the same for every document of the kind
	Hint    string // what to do, unless a document knows better
	Meaning string // for the reference: when it happens, what stands, whether to repeat
}

// Type is the "type" member of the kind's documents.
func (k Kind) Type() string { return typePrefix + string(k.Code) }

// Kinds lists every kind, in order of status.
func Kinds() []Kind {
	return append([]Kind(nil), table[:]...)
}

func find(code Code) (Kind, bool) {
	for _, k := range table {
		if k.Code == code {
			return k, true
		}
	}
	return Kind{}, false
}

var table = [...]Kind{
	{InvalidJSON, http.StatusBadRequest, "The body isn't valid JSON",
		"Send one JSON object as UTF-8, or NDJSON with Content-Type application/x-ndjson.",
		"The body (in NDJSON: the line) can't be read: a syntax error, something after the object, invalid UTF-8, a lone surrogate, or nesting deeper than 10,000. Nothing was stored. Repeating it unchanged fails again."},
	{InvalidEvent, http.StatusBadRequest, "The event breaks a rule of the contract",
		"Correct the member that `field` names; docs/protocol.md lists the rules.",
		"A member has the wrong type, is missing, or breaks a rule for device IDs, types, keys. Nothing was stored. Repeating it unchanged fails again."},
	{UnknownMember, http.StatusBadRequest, "A member of the request is unknown",
		"Remove it, or correct its name. Known are device, devices, type, payload, text, key, idem and trace.",
		"Unknown members are refused rather than ignored, because a misspelt \"idem\" that is ignored means doubles. Nothing was stored."},
	{DuplicateMember, http.StatusBadRequest, "A member of the request stands twice",
		"Send each member once.",
		"JSON readers disagree about which of two members counts, so neither does. The same goes for a device that stands twice in `devices`. Nothing was stored."},
	{TooManyDevices, http.StatusBadRequest, "The event names too many devices",
		"Split the list into several requests, or address a group (\"@name\") or everybody (\"*\").",
		"`devices` has more than 1,000 members. Nothing was stored."},
	{InvalidIdempotency, http.StatusBadRequest, "The idempotency key can't be used",
		"Send 1 to 256 bytes without control characters, for example a UUID, in the header Idempotency-Key or in the member idem.",
		"The key is empty, too long, holds control characters, or header and member differ. Nothing was stored."},
	{InvalidLimit, http.StatusBadRequest, "A limit can't be changed like this",
		"GET /v1/limits lists each limit, which values it takes, and how it is changed. Nothing was changed.",
		"A PATCH of /v1/limits names a limit that there isn't, a value that it doesn't take, or a limit that can't be changed while the gateway runs. Not one of the request's limits was changed."},
	{InvalidSetting, http.StatusBadRequest, "The governor can't be changed like this",
		"Correct what the detail names; GET /v1/governor shows all settings in the form in which PATCH takes them. Nothing was changed.",
		"A PATCH of /v1/governor names a setting, a signal or a lever that there isn't, or a value that it doesn't take; the detail lists all of them. Not one of the request's settings was changed."},
	{InvalidUse, http.StatusBadRequest, "What a program uses can't be said like this",
		`Send an object such as {"caller": "game-7f3a", "use": 1200, "for_seconds": 30}.`,
		"`caller` isn't a name of 1 to 128 bytes, `use` is missing or not between 0 and 1e9, or `for_seconds` is missing or not between 1 and 3600. What was said before counts."},
	{InvalidOrder, http.StatusBadRequest, "The order about a device can't be given like this",
		"Correct what `field` names; docs/protocol.md, Devices, lists the rules.",
		"The device ID in the path breaks the rules for device IDs, `reason` is too long or holds control characters, or `retry_ms` is out of bounds. Nothing was stored."},
	{InvalidDevice, http.StatusBadRequest, "No device can have that name",
		"Correct the device ID in the path: 1 to 128 bytes of UTF-8 without control characters, starting with neither * nor @, percent-encoded.",
		"The device ID in the path breaks the rules for device IDs (docs/protocol.md, Words and limits)."},
	{InvalidTicket, http.StatusBadRequest, "The ticket can't be made like this",
		"Correct the member that `field` names; docs/operate/tickets.md says what a ticket is made of.",
		"The device or a group isn't one, there are too many groups, or a time is longer than the settings allow. No ticket was made."},
	{Unauthorized, http.StatusUnauthorized, "The request proves no right to be here",
		"Send Authorization: Bearer with a publisher's token; docs/operate/publishers.md says how to get one. A device's token doesn't count here.",
		"backend_auth is on, and the token is missing, unknown, expired, or not for this port. Nothing was stored. Repeating it unchanged fails again."},
	{Forbidden, http.StatusForbidden, "The token doesn't allow this",
		"Use a token with the scope that the detail names, or have it added to this one; docs/operate/publishers.md lists the scopes.",
		"The token is good, and its scopes don't cover the device, the group, the broadcast or the call. Nothing was stored; of a batch the other lines count."},
	{CrossOrigin, http.StatusForbidden, "The request comes from a page of another origin",
		"Send it from a program, not from a web page.",
		"A browser says that a page of another origin made the request. Orders about devices aren't taken from one. Nothing was stored."},
	{NotFound, http.StatusNotFound, "There is nothing at this address",
		"GET /v1/openapi.yaml lists the addresses of the back end. Devices connect to the other port, to /events. A dialler has no other port; without an owner it takes POST /v1/push.",
		"The path isn't one of the back end's."},
	{TicketsOff, http.StatusNotFound, "This gateway makes no tickets",
		"Add tickets to auth, and set ticket_secret_file to the same secrets on every gateway; docs/operate/tickets.md shows how.",
		"Tickets are off, as they are unless they are turned on."},
	{DeviceUnknown, http.StatusNotFound, "The inventory doesn't have the device",
		"Add the device to the inventory, which is read again by itself, or correct its ID; downlink dial status says how the inventory stands.",
		"A push names a device whose address isn't known. Nothing was sent, so a repeat is safe."},
	{MethodNotAllowed, http.StatusMethodNotAllowed, "The method isn't allowed here",
		"Use a method that the header Allow names.",
		"The path is right, the method isn't. Nothing was stored."},
	{RequestTimeout, http.StatusRequestTimeout, "The request didn't arrive in time",
		"Send the body without long pauses; close a batch that has nothing to send and open another one later.",
		"No byte of the body came for 30 seconds. A single event was not stored. Lines of a batch that were answered with an ID stand."},
	{Conflict, http.StatusConflict, "The idempotency key was used for something else",
		"Use a new key for a new event. If this is a retry, send exactly what the first request sent.",
		"Inside the window the same publisher used this key with other targets, type, payload or conflation key. What was stored under it stands; nothing was added, except on shards that had not seen the key (listed in `ids`)."},
	{DrainFinal, http.StatusConflict, "The drain can't be aborted any more",
		"Let it come to its end; devices continue at other gateways, from where they are.",
		"Connections are being closed already, or the process was asked to end by a signal, and whoever sent it would kill it if it went on. Nothing has changed."},
	{EventTooLarge, http.StatusRequestEntityTooLarge, "The event is too large",
		"Send less, for example an address to fetch the rest from; or raise max_event_bytes on every gateway.",
		"The payload has more bytes than max_event_bytes, or devices times payload is more than 64 MiB. Nothing was stored, and no device notices."},
	{BodyTooLarge, http.StatusRequestEntityTooLarge, "The body is too large",
		"Send a smaller body; several events go as NDJSON, where the limit counts for each line.",
		"The body (in NDJSON: the line) is larger than any allowed event could be. Nothing of it was stored. A batch goes on with the next line."},
	{UnsupportedMedia, http.StatusUnsupportedMediaType, "The media type isn't supported",
		"Send Content-Type: application/json for one event, application/x-ndjson for a batch, without Content-Encoding.",
		"The Content-Type is missing or another one, its charset isn't UTF-8, or the body is compressed. Nothing was stored."},
	{WrongHost, http.StatusMisdirectedRequest, "The request is for another host",
		"Ask by address or as localhost. A proxy on the same machine must send one of these as Host.",
		"The back end listens on a loopback address and was asked under another name. A page in a browser on this machine could otherwise have its own name point here, and publish (DNS rebinding)."},
	{TooManyEvents, http.StatusTooManyRequests, "Events are published faster than allowed",
		"Repeat the event after Retry-After seconds (`retry_after`), with the same idempotency key, and publish more slowly; or have the limit that the detail names raised (downlink limits). With the header Downlink-Signal it is the governor's doing: docs/operate/governor.md.",
		"The publisher's entries exceed publish_rate_per_token, those for one addressee publish_rate_per_device, or those of all publishers publish_rate, which the governor may hold below what is configured, or set where nothing is (the header Downlink-Signal names the signal); the detail says which. An event for everybody or for a group counts for each shard that it is written to. Nothing of the event was stored. In a batch, later lines for the same addressee are refused too, and after publish_rate_per_token all later lines: stored, they would overtake this one."},
	{DeviceBusy, http.StatusTooManyRequests, "Earlier pushes to the device have not ended",
		"Repeat the push after Retry-After seconds (`retry_after`), with the same idempotency key; or push to this device less often, or raise push_in_flight_per_device if it can answer several requests at once.",
		"As many pushes to the device are under way as push_in_flight_per_device allows, and the turn of this one didn't come within push_wait, or others wait already. Nothing was sent, so a repeat is safe. Other devices are not concerned."},
	{PushAbandoned, 499, "The client has gone",
		"Wait longer for the answer than push_wait and post_timeout together; or repeat it with the same idempotency key.",
		"The producer closed its connection before the device had answered, and the push was cut off. `sent` says whether the device may have had the event. Nobody gets this answer; it is counted."},
	{Internal, http.StatusInternalServerError, "The gateway failed",
		"Repeat the request with the same idempotency key. If it fails again, look into the gateway's log.",
		"A fault of the gateway, not of the request. Whether something was stored isn't known."},
	{DeviceRefused, http.StatusBadGateway, "The device refused the event",
		"`answer` is what the device said. If it asks for a later repeat, do that, with the same idempotency key; else correct what it complains of.",
		"The device got the event and answered with another status than 2xx; redirects count as such and are not followed. Whether it did anything with the event only the device knows."},
	{DeviceUnreachable, http.StatusBadGateway, "The device can't be reached",
		"Repeat the push later; nothing was sent, so that is safe. `stage` says what failed: policy and credential are for whoever runs the gateway, resolve, connect and tls for whoever runs the device or the network.",
		"The way to the device failed before a byte of the event was sent: the rules forbid its address (policy), what should be shown to it isn't known (credential), its name has no address (resolve), no connection came about (connect), or the TLS handshake failed (tls). The detail says whether it was a time limit."},
	{KeysUnavailable, http.StatusServiceUnavailable, "The token can't be checked now",
		"Repeat the request after Retry-After seconds; if it lasts, see whether the gateway reaches backend_jwt_jwks_url.",
		"The keys that publishers' tokens are checked with have not been fetched, or not recently enough. Nothing was stored."},
	{LogUnavailable, http.StatusServiceUnavailable, "The log can't be reached",
		"Repeat the request after Retry-After seconds, with the same idempotency key.",
		"The log didn't confirm within publish_timeout. Nothing is claimed: it may or may not have been stored. With an idempotency key a retry stores it exactly once; what stands already is listed in `ids`."},
	{NotReplicated, http.StatusServiceUnavailable, "Too few replicas confirmed it",
		"Repeat the request after Retry-After seconds, with the same idempotency key; if it lasts, see which replicas of Redis are away, or set durability lower.",
		"With durability replicas:N, fewer than N replicas had the event within a second. The primary has it, and devices may get it already, but a failover could lose it, so nothing is claimed. With an idempotency key a retry stores nothing twice, and succeeds once the replicas have it; without one it would be stored again."},
	{LogFull, http.StatusServiceUnavailable, "The log is full",
		"Give Redis more memory (maxmemory) or the embedded log more disk, shorten the window, or publish less; then repeat the request.",
		"Memory or disk of the log is used up. Nothing was stored for the shards in `errors`."},
	{LogExhausted, http.StatusServiceUnavailable, "The shard can't issue another ID",
		"Delete the stream that the detail names: somebody has written the highest possible ID into it.",
		"A raw writer used an explicit ID at the end of the range. The shard takes no events until an operator deletes its stream; its devices then resync."},
	{ShuttingDown, http.StatusServiceUnavailable, "The gateway is shutting down",
		"Repeat the request; a load balancer will choose another gateway.",
		"The log was closed because this gateway stops. Nothing was stored for the shards in `errors`."},
	{PushFull, http.StatusServiceUnavailable, "As many pushes are under way as may be",
		"Repeat the push after Retry-After seconds (`retry_after`); if it lasts, raise push_in_flight (downlink limits), or add a gateway.",
		"push_in_flight is reached, or the half of it that devices may have which lately failed or were slow; the detail says which. Nothing was sent, so a repeat is safe."},
	{InventoryUnavailable, http.StatusServiceUnavailable, "The list of devices can't be read yet",
		"Repeat the push; if it lasts, see in the gateway's log why the inventory can't be read. Another gateway may have it.",
		"The gateway has not been able to read its inventory since it started. Nothing was sent, so a repeat is safe. Once it was read, the last one counts while it can't be."},
	{BackendFull, http.StatusServiceUnavailable, "The back end holds as many connections as it may",
		"Keep connections open and use them again instead of opening one for each request; or give the gateway more file descriptors (ulimit -n), of which the back end has a sixteenth.",
		"A request on a new connection, while downlink_limit_used{name=\"backend_connections\"} is at downlink_limit, or the process is out of descriptors. Nothing was stored, and the connection is closed. Health is answered all the same. Repeat it after Retry-After seconds."},
	{NoOpinion, http.StatusServiceUnavailable, "The governor has just begun",
		"Go on with the last ratio that a governor has said, and repeat the request after Retry-After seconds. The package throttle does so.",
		"It hasn't yet read all that it goes by for 15 s, which it takes to judge; the detail says what is missing. What it said now would be 1, and open everything although Redis may be full. `/readyz` and the health of gRPC say the same."},
	{TooManyCallers, http.StatusServiceUnavailable, "As many programs say what they use as may",
		"Let several processes of a program say it as one, or only ask: GET /v1/governor has no such limit.",
		"governor_callers programs are counted at this governor. What they have said counts; this one's use doesn't."},
	{TooManyFollowers, http.StatusServiceUnavailable, "As many follow the governor as may",
		"Repeat the request after Retry-After seconds; or ask GET /v1/governor every few seconds, which has no such limit.",
		"governor_followers streams of GET /v1/governor/events are open at this gateway. Those go on."},
	{NoAnswer, http.StatusGatewayTimeout, "The device gave no answer",
		"Repeat the push with the same idempotency key if the device drops what it has had; without a key it could get the event twice.",
		"The event was on its way, and then the connection broke (stage send or answer) or post_timeout was up. The device may have had it or not; nobody can know."},
}
