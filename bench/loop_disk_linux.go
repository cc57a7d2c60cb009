package main

import (
	"fmt"
	"os"
	"syscall"
	"time"
)

// A fileKeeper writes events behind one another into a file. A second thread
// does that, and fdatasync(2), for all that the first has gathered meanwhile.
type fileKeeper struct {
	file            *os.File
	heard, said     *os.File // a pipe: a byte for each round trip that ended
	batches         chan []byte
	ended           chan error
	gathered, asked []kept // for the next round trip; of the one under way
	request, spare  []byte // records to write; those of the last round trip, for their room
	millis, seq     int64  // of the last ID
}

// kept is an event with its ID, and who waits for it.
type kept struct {
	order
	delivery
}

func keepInFile(path string) (*fileKeeper, error) {
	k := &fileKeeper{batches: make(chan []byte, 1), ended: make(chan error, 1)}
	var err error
	if k.file, err = os.Create(path); err != nil {
		return nil, err
	}
	if k.heard, k.said, err = os.Pipe(); err != nil {
		_ = k.file.Close()
		return nil, err
	}
	go k.sync()
	return k, nil
}

// sync makes batches durable, one after the other.
func (k *fileKeeper) sync() {
	for batch := range k.batches {
		_, err := k.file.Write(batch)
		if err == nil {
			err = syscall.Fdatasync(int(k.file.Fd()))
		}
		if err == nil {
			_, err = k.said.Write([]byte{1})
		}
		if err != nil {
			k.ended <- err
			_ = k.said.Close()
			return
		}
	}
	_ = k.said.Close()
}

func (k *fileKeeper) descriptor() int { return int(k.heard.Fd()) }

func (k *fileKeeper) close() {
	close(k.batches)
	_ = k.heard.Close()
	_ = k.file.Close()
}

func (k *fileKeeper) gather(o order, device, payload []byte) {
	if now := time.Now().UnixMilli(); now > k.millis {
		k.millis, k.seq = now, 0
	} else {
		k.seq++
	}
	id := fmt.Appendf(nil, "%d-%d", k.millis, k.seq)
	k.request = fmt.Appendf(k.request, "%d %s %d %s %d %s\n", o.shard, id, len(device), device, len(payload), payload)
	// The loop's buffer of a producer is written over by the next request.
	k.gathered = append(k.gathered, kept{o, delivery{o.shard, id, append([]byte(nil), device...), append([]byte(nil), payload...)}})
}

func (k *fileKeeper) flush() error {
	if len(k.asked) > 0 || len(k.gathered) == 0 {
		return nil
	}
	k.batches <- k.request
	k.request, k.spare = k.spare[:0], k.request
	k.asked, k.gathered = k.gathered, k.asked[:0]
	return nil
}

func (k *fileKeeper) hear(answer func(order, []byte), deliver func(delivery)) error {
	var one [1]byte
	if n, err := syscall.Read(k.descriptor(), one[:]); n != 1 {
		select {
		case err := <-k.ended:
			return err
		default:
			return fmt.Errorf("the thread that writes has ended: %w", err)
		}
	}
	for _, e := range k.asked {
		answer(e.order, e.id)
	}
	for _, e := range k.asked {
		deliver(e.delivery)
	}
	k.asked = k.asked[:0]
	return nil
}
