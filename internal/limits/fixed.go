package limits

// systemLimits are what the process was given.
func systemLimits() []Definition {
	return []Definition{
		{
			Name: Descriptors, Unit: "descriptors", Change: System,
			Help:    "File descriptors that the process may have open (RLIMIT_NOFILE, read at start; Go has raised the soft limit to the hard one). Each connection takes one. Some are kept back for the log, and a share for the back end's port; the rest bounds max_connections.",
			Reached: "The gateway doesn't start with fewer than 256. max_connections and max_handshakes are lowered to what fits. If they run out all the same, because something else takes them, new streams are refused (descriptors in Downlink-Refused and downlink_refused_total), and those that are open stay.",
		},
		{
			Name: BackendConnections, Unit: "connections", Change: System,
			Help:    "Connections of publishers: the back end's port has its own share of the descriptors, so that no number of devices shuts publishers and operators out.",
			Reached: "503 with the problem back-end-full, and the connection is closed; health and metrics are answered all the same.",
		},
	}
}

// Names of limits that code binds and that are no settings.
const (
	Descriptors        = "descriptors"
	BackendConnections = "backend_connections"
	RefusalsHeld       = "refusals_held" // fixed, but never more than there is room for
)

// fixedLimits are constants. They bound memory or work that no setting has to
// reach; each row is held to its constant by a test.
func fixedLimits() []Definition {
	rows := contractLimits()
	rows = append(rows, requestLimits()...)
	rows = append(rows, credentialLimits()...)
	rows = append(rows, workLimits()...)
	rows = append(rows, dialLimits()...)
	for i := range rows {
		rows[i].Change = Fixed
	}
	return rows
}

// dialLimits are those of a dialler.
func dialLimits() []Definition {
	return []Definition{
		{Name: "devices_per_push", Source: "push.MaxDevices", Default: 1000, Unit: "devices", Help: "Devices that one push may list.", Reached: "400 with the problem too-many-devices. Send several requests, or NDJSON."},
		{Name: "push_in_flight_per_call", Source: "push.perCallMost", Default: 256, Unit: "pushes", Help: "Devices of one request, or lines of a batch, that are pushed to at the same time.", Reached: "The others of the request wait for those; other requests don't."},
		{Name: "push_waiting_per_device", Source: "push.maxWaiting", Default: 16, Unit: "pushes", Help: "Pushes that wait for their turn at one device.", Reached: "429 with the problem device-busy; nothing was sent."},
		{Name: "push_body_extra_bytes", Source: "push.bodyRest", Default: 1 << 20, Unit: "bytes", Help: "Room in a push request's body, or a batch's line, beyond six times max_event_bytes (a text can be six times as long in JSON).", Reached: "413 with the problem body-too-large."},
		{Name: "tracestate_bytes", Source: "push.maxStateBytes", Default: 512, Unit: "bytes", Help: "Length of a tracestate header that is passed on with a push.", Reached: "It isn't passed on; traceparent is."},
		{Name: "inventory_bytes", Source: "inventory.maxListBytes redislog.maxDevicesBytes", Default: 64 << 20, Unit: "bytes", Help: "Size of an inventory, as it is read.", Reached: "The inventory is refused, and the one before it stays in use."},
		{Name: "inventory_entries", Source: "inventory.maxEntries", Default: 1 << 20, Unit: "entries", Help: "Entries of an inventory, those included that can't be used.", Reached: "The inventory is refused, and the one before it stays in use."},
		{Name: "inventory_yaml_bytes", Source: "inventory.maxYAMLBytes", Default: 8 << 20, Unit: "bytes", Help: "Size of an inventory that is YAML, whose reader needs a hundred times as much memory.", Reached: "As for inventory_bytes. Write it as CSV or JSON."},
		{Name: "yaml_nested", Source: "strictyaml.maxNested", Default: 4, Unit: "brackets", Help: "Brackets in one another in a file that is YAML (configuration, tokens, credentials, inventory, governor), which has no anchors and no aliases either.", Reached: "The file is refused; what it said before stays in use."},
		{Name: "inventory_url_bytes", Source: "inventory.maxURLBytes", Default: 2048, Unit: "bytes", Help: "Length of a device's URL.", Reached: "The entry is passed over (downlink_inventory_invalid_entries)."},
		{Name: "inventory_groups_per_device", Source: "inventory.maxGroups", Default: 64, Unit: "groups", Help: "Groups of one device in the inventory.", Reached: "As for inventory_url_bytes."},
		{Name: "credential_name_bytes", Source: "inventory.maxCredentialBytes egress.maxCredentialBytes", Default: 128, Unit: "bytes", Help: "Length of a credential's name, in the inventory and in device_credentials_file.", Reached: "The entry of the inventory is passed over; the file of credentials is refused, and the one before it stays in use."},
		{Name: "inventory_redirects", Source: "inventory.maxRedirects", Default: 5, Unit: "redirects", Help: "Redirects that are followed to an inventory.", Reached: "The reading fails, and the inventory before it stays in use."},
		{Name: "inventory_token_bytes", Source: "inventory.maxTokenBytes", Default: 16 << 10, Unit: "bytes", Help: "Size of inventory_token_file.", Reached: "The reading fails, and the inventory before it stays in use."},
		{Name: "device_credentials_file_bytes", Source: "egress.maxFileBytes", Default: 16 << 20, Unit: "bytes", Help: "Size of device_credentials_file, of device_ca_file, and of each file that the former names.", Reached: "The file is refused, and what was read before stays in use."},
		{Name: "device_addresses", Source: "egress.maxAddresses", Default: 8, Unit: "addresses", Help: "Addresses of a device's name that are tried.", Reached: "The others aren't tried."},
		{Name: "post_pending_events", Source: "dial.postPending", Default: 16, Unit: "events", Help: "Events that wait in memory for a device that gets them as POSTs, in place of pending_events: one is under way at a time, and thousands of devices that can't be reached must not hold thousands each.", Reached: "The device reads on from the log. Nothing is lost."},
		{Name: "device_answer_header_bytes", Source: "egress.maxHeaderBytes", Default: 16 << 10, Unit: "bytes", Help: "Header of a device's answer to a POST, or to the beginning of a WebSocket.", Reached: "The connection is closed: the answer counts as none."},
	}
}

// contractLimits are what docs/protocol.md promises to every client.
func contractLimits() []Definition {
	const refused = "Through the API: 400 with the problem invalid-event. Written past it: the entry is counted as a fault (downlink_log_faults_total) and passed over."
	return []Definition{
		{Name: "device_id_bytes", Source: "event.MaxDeviceBytes", Default: 128, Unit: "bytes", Help: "Length of a device ID.", Reached: "A credential that names a longer one is refused: 401, or 400 with auth none. " + refused},
		{Name: "group_bytes", Source: "event.MaxGroupBytes", Default: 128, Unit: "bytes", Help: "Length of a group's name, with its leading @.", Reached: "As for device_id_bytes."},
		{Name: "event_type_bytes", Source: "event.MaxTypeBytes", Default: 128, Unit: "bytes", Help: "Length of an event's type.", Reached: refused},
		{Name: "event_key_bytes", Source: "event.MaxKeyBytes", Default: 128, Unit: "bytes", Help: "Length of a conflation key.", Reached: refused},
		{Name: "event_trace_bytes", Source: "event.MaxTraceBytes", Default: 128, Unit: "bytes", Help: "Length of a traceparent.", Reached: refused},
		{Name: "idempotency_key_bytes", Source: "event.MaxIdemBytes", Default: 256, Unit: "bytes", Help: "Length of an idempotency key; in a batch with # and the line's number.", Reached: "400 with the problem invalid-idempotency-key."},
		{Name: "groups_per_device", Source: "auth.maxGroups door.maxGroups ticket.maxGroups", Default: 64, Unit: "groups", Help: "Groups that one credential, or one request with auth none, may name.", Reached: "401 with the failure token_groups, or 400 with auth none. A ticket for more isn't issued: 400."},
		{Name: "devices_per_event", Source: "publish.MaxDevices", Default: 1000, Unit: "devices", Help: "Devices that one event may list.", Reached: "400 with the problem too-many-devices. Send several requests, or address a group."},
	}
}

// requestLimits bound what one request can make the gateway hold or do.
func requestLimits() []Definition {
	return []Definition{
		{Name: "event_copies_bytes", Source: "publish.maxCopies", Default: 64 << 20, Unit: "bytes", Help: "Devices times payload of one event: the log stores each copy.", Reached: "413 with the problem event-too-large. Send the list in several requests, or address a group."},
		{Name: "publish_body_extra_bytes", Source: "publish.bodyRest", Default: 1 << 20, Unit: "bytes", Help: "Room in a publish request's body, or a batch's line, beyond six times max_event_bytes (a text can be six times as long in JSON).", Reached: "413 with the problem body-too-large."},
		{Name: "json_depth", Source: "publish.maxDepth", Default: 10000, Unit: "levels", Help: "Nesting of objects and arrays in a published event.", Reached: "400 with the problem invalid-json."},
		{Name: "batch_round_lines", Source: "publish.batchLines", Default: 512, Unit: "lines", Help: "Lines of a batch that are stored in one go; a batch itself may be of any length.", Reached: "The next ones are stored in another go."},
		{Name: "batch_round_entries", Source: "publish.batchEntries", Default: 4096, Unit: "entries", Help: "Entries of a batch that are stored in one go.", Reached: "As for batch_round_lines."},
		{Name: "batch_round_bytes", Source: "publish.batchBytes", Default: 1 << 20, Unit: "bytes", Help: "Payload of a batch that is stored in one go.", Reached: "As for batch_round_lines."},
		{Name: "batch_unread_answers", Source: "intake.queuedAnswers", Default: 64, Unit: "rounds", Help: "Answered rounds of a batch that wait for a client which sends without reading.", Reached: "The gateway reads no further lines until answers are taken; after 30 s without progress it cuts the connection."},
		{Name: "batch_refused_addressees", Source: "publish.maxLimited", Default: 10000, Unit: "addressees", Help: "Addressees of a batch's lines that were refused for publish_rate_per_device and are remembered, so that no later line for them overtakes.", Reached: "All later lines of the batch are refused, with the problem too-many-events."},
		{Name: "device_body_bytes", Source: "door.maxBody", Default: 4 << 10, Unit: "bytes", Help: "Body of a device's GET, which has no use for one: it is read and thrown away.", Reached: "413."},
		{Name: "order_body_bytes", Source: "control.maxBody eventlog.MaxControlBytes", Default: 4 << 10, Unit: "bytes", Help: "Body of an order about a device (disconnect, revoke), and its entry in the log.", Reached: "413 with the problem body-too-large. Written past the API: the entry is counted as a fault and passed over."},
		{Name: "order_reason_bytes", Source: "event.MaxReasonBytes", Default: 256, Unit: "bytes", Help: "Length of the reason in an order about a device.", Reached: "400; nothing is ordered."},
		{Name: "ticket_body_bytes", Source: "ticket.maxOrder", Default: 64 << 10, Unit: "bytes", Help: "Body of POST /v1/tickets.", Reached: "413 with the problem body-too-large."},
		{Name: "ticket_bytes", Source: "ticket.maxText", Default: 3072, Unit: "bytes", Help: "Length of a ticket, and of the cookie that it is exchanged for: browsers take cookies of up to 4,096 bytes.", Reached: "A ticket that would be longer, for its device's name and groups, isn't issued: 400."},
		{Name: "dialled_message_bytes", Source: "dial.maxMessage", Default: 4 << 10, Unit: "bytes", Help: "A message of a device that is dialled over a WebSocket: its hello, or a commit.", Reached: "The connection is closed (1009), and the device is dialled again."},
		{Name: "drain_body_bytes", Source: "drain.maxBody", Default: 1 << 10, Unit: "bytes", Help: "Body of POST /v1/drain.", Reached: "413 with the problem body-too-large."},
		{Name: "governor_body_bytes", Source: "api.maxPatchBytes rpc.maxRequestBytes", Default: 64 << 10, Unit: "bytes", Help: "Body of PATCH /v1/governor, and of a request by gRPC.", Reached: "413 with the problem body-too-large; nothing was changed."},
		{Name: "governor_health_watchers", Source: "rpc.maxHealthWatchers", Default: 256, Unit: "streams", Help: "Watches of the health of downlink governor at a time, by gRPC.", Reached: "UNAVAILABLE; those that are open go on. Check has no such limit."},
		{Name: "governor_callers", Source: "usage.maxCallers", Default: 4096, Unit: "programs", Help: "Programs that say to downlink governor what they use, at a time.", Reached: "503 with the problem too-many-callers; those that are counted go on."},
		{Name: "governor_caller_bytes", Source: "usage.maxNameBytes", Default: 128, Unit: "bytes", Help: "Length of the name under which a program says what it uses.", Reached: "400 with the problem invalid-use."},
		{Name: "governor_use_body_bytes", Source: "usage.maxBody", Default: 4 << 10, Unit: "bytes", Help: "Body of POST /v1/governor/use.", Reached: "413 with the problem body-too-large."},
		{Name: "governor_watchers", Source: "rpc.maxWatchers", Default: 1024, Unit: "streams", Help: "Watches of downlink governor at a time, by gRPC.", Reached: "RESOURCE_EXHAUSTED; those that are open go on. Ask for the state from time to time instead."},
		{Name: "governor_followers", Source: "api.maxFollowers", Default: 64, Unit: "streams", Help: "Streams of GET /v1/governor/events at a time.", Reached: "503 with the problem too-many-followers; those that are open go on."},
		{Name: "governor_changes_remembered", Source: "governor.remembered", Default: 128, Unit: "changes", Help: "Changes of levers that GET /v1/governor/events can still tell to who comes back.", Reached: "The oldest are forgotten; who asks for them is told that some are missing. The log has them all."},
		{Name: "limits_body_bytes", Source: "limits.maxPatchBytes", Default: 64 << 10, Unit: "bytes", Help: "Body of PATCH /v1/limits.", Reached: "413 with the problem body-too-large."},
		{Name: "governor_file_bytes", Source: "settingsfile.maxFileBytes", Default: 256 << 10, Unit: "bytes", Help: "Length of governor_file, and of each file that it names: a hundred times what all settings need.", Reached: "As for config_file_bytes."},
		{Name: "config_file_bytes", Source: "config.maxFileBytes", Default: 1 << 20, Unit: "bytes", Help: "Length of the configuration file.", Reached: "The gateway doesn't start; while it runs, the file is not used and what was read before counts."},
	}
}

// credentialLimits bound the work that one credential, or one source of keys, makes.
func credentialLimits() []Definition {
	return []Definition{
		{Name: "keys_tried", Source: "jwt.maxTried", Default: 16, Unit: "keys", Help: "Keys that a token which names none (kid) is tried with.", Reached: "401 with the failure token_key, if there are more. Give the keys a kid."},
		{Name: "rsa_key_bytes", Source: "jwt.maxRSABytes", Default: 1024, Unit: "bytes", Help: "Length of an RSA key: checking a signature of a longer one takes milliseconds.", Reached: "The key isn't used; the gateway's log says so."},
		{Name: "key_file_bytes", Source: "jwt.maxFileBytes ticket.maxFileBytes", Default: 1 << 20, Unit: "bytes", Help: "Length of a file of keys or secrets.", Reached: "The gateway doesn't start; while it runs, what was read before stays in use."},
		{Name: "device_tokens_file_bytes", Source: "auth.maxTokensBytes", Default: 16 << 20, Unit: "bytes", Help: "Length of device_tokens_file: about a hundred thousand lines.", Reached: "As for key_file_bytes."},
		{Name: "client_certificate_files_bytes", Source: "certs.maxFileBytes", Default: 32 << 20, Unit: "bytes", Help: "Length of tls_client_ca_file, and of tls_client_crl_file: about half a million revoked certificates.", Reached: "As for key_file_bytes."},
		{Name: "client_certificates_shown", Source: "certs.maxShown", Default: 8, Unit: "certificates", Help: "Certificates that a client may show: its own and those above it.", Reached: "401 with the failure certificate_untrusted."},
		{Name: "publishers_file_bytes", Source: "access.maxFileBytes", Default: 1 << 20, Unit: "bytes", Help: "Length of the file of publishers: room for thousands.", Reached: "As for key_file_bytes."},
		{Name: "ticket_secrets", Source: "ticket.maxSecrets", Default: 16, Unit: "secrets", Help: "Secrets in the file that tickets are made and checked with.", Reached: "As for key_file_bytes."},
		{Name: "publisher_name_bytes", Source: "access.maxNameBytes", Default: 128, Unit: "bytes", Help: "Length of a publisher's name.", Reached: "In a file: as for key_file_bytes. In a token: 401."},
		{Name: "publisher_patterns", Source: "access.maxPatterns", Default: 256, Unit: "patterns", Help: "Devices, groups and beginnings of their names that one publisher's scopes list.", Reached: "In a file: as for key_file_bytes. In a token: 401."},
		{Name: "publisher_verdicts", Source: "access.maxVerdicts", Default: 1024, Unit: "tokens", Help: "Publishers' tokens whose check is remembered for 10 s.", Reached: "All are forgotten, and checked again: that costs time, and nobody is refused."},
		{Name: "key_set_redirects", Source: "jwt.maxRedirects", Default: 5, Unit: "redirects", Help: "Redirects that fetching a key set follows.", Reached: "As for key_set_bytes."},
		{Name: "key_set_bytes", Source: "jwt.maxKeySetBytes", Default: 1 << 20, Unit: "bytes", Help: "Length of a fetched key set.", Reached: "The fetch fails (downlink_jwks_fetches_total) and what was fetched before stays in use."},
	}
}

// workLimits bound the gateway's own work, so that it can be predicted.
func workLimits() []Definition {
	return []Definition{
		{Name: RefusalsHeld, Source: "door.maxHeld", Default: 1000, Unit: "answers", Help: "Refusals that are held back for a moment at the same time, so that a gateway that refuses doesn't look like the fastest one.", Reached: "Further refusals go out at once."},
		{Name: "refused_body_bytes", Source: "server.maxSwallowed", Default: 64 << 10, Unit: "bytes", Help: "What a refused client may still send before its connection is closed, so that it reads the answer.", Reached: "The connection is closed."},
		{Name: "handshakes_reserved", Source: "gateway.mostWaiting", Default: 4096, Unit: "connections", Help: "Descriptors that are kept for connections without a stream, an eighth of a port's share and no more than this: max_handshakes can't be higher.", Reached: "As for max_handshakes."},
		{Name: "handshakes_per_core", Source: "lobby.mostPerCore", Default: 2, Unit: "handshakes", Help: "TLS handshakes that have the processor at a time, for each core that the process may use; a handshake that waits for its client doesn't count.", Reached: "Further ones wait for their turn: first those from addresses with fewest connections that wait, of these the newest."},
		{Name: "cuts_at_once", Source: "server.maxCutting", Default: 64, Unit: "connections", Help: "Connections of a port that are being cut to make room, and whose descriptors aren't free yet.", Reached: "Accepting waits until one is gone."},
		{Name: "descriptors_reserved", Source: "gateway.mostReserve", Default: 16, Unit: "descriptors", Help: "Descriptors of each port that are kept for when the process has no other, so that health and refusals are answered then.", Reached: "It is a reserve."},
		{Name: "addresses_remembered", Source: "lobby.maxIdle", Default: 16 << 10, Unit: "addresses", Help: "Client addresses without a connection that accept_rate_per_address remembers.", Reached: "The one that has been idle longest is forgotten, and begins with a full allowance if it comes back."},
		{Name: "accepting", Source: "server.maxAccepting", Default: 8, Unit: "goroutines", Help: "Goroutines that wait for the next connection; one that serves a request takes no place.", Reached: "Further ones end; none is needed."},
		{Name: "poll_answer_bytes", Source: "poll.answerBytes", Default: 1 << 20, Unit: "bytes", Help: "Events in one answer to a poll; one event may always come, whatever its size.", Reached: "The rest comes with the next poll, which doesn't wait."},
		{Name: "send_buffer_bytes", Source: "server.sendBuffer egress.sendBuffer", Default: 64 << 10, Unit: "bytes", Help: "What the kernel may hold for a device that doesn't read (Linux doubles it).", Reached: "The session waits for room: pending_events and write_timeout say how long and for how much."},
		{Name: "unsent_bytes", Source: "server.unsentBytes", Default: 16 << 10, Unit: "bytes", Help: "What the kernel may hold of a connection that it hasn't sent yet.", Reached: "As for send_buffer_bytes."},
		{Name: "catchup_laps", Source: "gateway.maxLaps", Default: 8, Unit: "laps", Help: "Shared readings of the log for devices that are behind, over all shards.", Reached: "Further shards wait for their turn."},
		{Name: "catchup_page_bytes", Source: "gateway.pageBytes", Default: 1 << 20, Unit: "bytes", Help: "Size of one read of the past.", Reached: "The lap goes on with the next page."},
		{Name: "redis_read_bytes", Source: "redislog.mostBudget", Default: 8 << 20, Unit: "bytes", Help: "About how large the reply to one read of Redis may be.", Reached: "The rest comes with the next read."},
		{Name: "redis_append_commands", Source: "redislog.roundCommands", Default: 512, Unit: "commands", Help: "Appends that share one round trip to Redis.", Reached: "Further ones go with the next round trip."},
		{Name: "redis_read_entries", Source: "redislog.maxCount", Default: 1000, Unit: "entries", Help: "Entries of one shard in one read of Redis.", Reached: "The rest comes with the next read."},
		{Name: "redis_groups", Source: "redislog.maxGroups", Default: 256, Unit: "groups", Help: "Groups of shards that a Redis Cluster is asked for, each with a connection of its own.", Reached: "The gateway doesn't start."},
		{Name: "redis_moves", Source: "redislog.maxMoves", Default: 5, Unit: "moves", Help: "How often one call follows keys that have moved to another server of Redis.", Reached: "The call fails as with Redis away: 503 to a publisher, who repeats it."},
		{Name: "gateways_compared", Source: "redislog.mostNotes", Default: 4096, Unit: "gateways", Help: "Gateways on one log that tell each other how many streams they hold.", Reached: "What they have said is forgotten; they say it again within 2 s, and no stream is ended for it (rebalance_rate) before they have been there for rebalance_after."},
		{Name: "filelog_commit_bytes", Source: "filelog.maxGroupBytes", Default: 8 << 20, Unit: "bytes", Help: "Events that the embedded log stores with one write to the disk.", Reached: "Further ones wait for the next write, milliseconds later."},
		{Name: "filelog_fresh_bytes", Source: "filelog.freshBytes", Default: 4 << 20, Unit: "bytes", Help: "Memory of the embedded log for the newest entries, over all shards.", Reached: "The tail reads from the disk."},
		{Name: "filelog_marks", Source: "filelog.maxMarks", Default: 128, Unit: "marks", Help: "Times that the embedded log remembers for a shard, by which it knows what has left the window.", Reached: "The oldest is dropped: entries stay a little longer."},
		{Name: "filelog_note_days", Source: "filelog.maxDays", Default: 16, Unit: "days", Help: "Days by which the embedded log keeps its notes of what was removed.", Reached: "The oldest is dropped: notes stay a little longer."},
		{Name: "filelog_shards", Source: "filelog.MaxShards", Default: 1 << 16, Unit: "shards", Help: "Shards that the embedded log's keys have room for; the setting shards allows 1,024.", Reached: "The gateway doesn't start."},
		{Name: "trail_detail_bytes", Source: "trail.maxDetail", Default: 200, Unit: "bytes", Help: "Length of a text that downlink explain shows of something that happened.", Reached: "The text is cut."},
		{Name: "trail_entries_per_device", Source: "trail.perDevice", Default: 16, Unit: "entries", Help: "What lately happened to one device, for downlink explain.", Reached: "Its oldest entry is dropped."},
		{Name: "breaks_remembered", Source: "eventlog.MaxBreaks", Default: 16, Unit: "breaks", Help: "Moments at which part of a shard may have been lost that are kept apart.", Reached: "The oldest are merged, to the side of caution: more devices resync, none misses anything."},
		{Name: "descriptors_kept", Source: "gateway.keptBack", Default: 192, Unit: "descriptors", Help: "Descriptors that are kept back for the log; the embedded one holds up to 128 files.", Reached: "It is a reserve: what devices and the back end may have is counted without it."},
	}
}
