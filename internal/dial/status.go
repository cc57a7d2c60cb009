package dial

// Counts are how many devices are in which state.
type Counts struct {
	Devices     int `json:"devices"`
	Connected   int `json:"connected"`
	Dialling    int `json:"dialling"`
	Unreachable int `json:"unreachable"`
}

// A ShardStatus is one shard that this engine has.
type ShardStatus struct {
	Shard int
	Counts
}

// Status counts the devices of each shard that this engine has, in order.
func (e *Engine) Status() []ShardStatus {
	var list []ShardStatus
	for _, h := range e.holdings() {
		list = append(list, ShardStatus{h.shard, h.count()})
	}
	return list
}

func (h *holding) count() Counts {
	var n Counts
	for _, l := range h.all() {
		n.Devices++
		switch l.state() {
		case Connected:
			n.Connected++
		case Unreachable:
			n.Unreachable++
		default:
			n.Dialling++
		}
	}
	return n
}

// Add adds the counts of another part.
func (n *Counts) Add(o Counts) {
	n.Devices += o.Devices
	n.Connected += o.Connected
	n.Dialling += o.Dialling
	n.Unreachable += o.Unreachable
}
