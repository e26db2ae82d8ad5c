package process

import (
	"os"
	"time"
)

const (
	pipeBytes = 1 << 20
	readBytes = 1 << 18
	// drainAllowance bounds the reading of a pipe after every process is dead: only a descriptor
	// that was handed out of the container can still hold it open.
	drainAllowance = 250 * time.Millisecond
)

// Capture keeps the first bytes and the last bytes of a stream and counts all of them.
// The first ones also go to a file at once, for the case that this process is killed.
type Capture struct {
	Head      []byte
	HeadLimit int
	tail      []byte // a ring once it is full
	TailLimit int
	next      int // where the ring continues
	Total     int64
	live      *os.File
}

// Add takes the next bytes of the stream in.
func (c *Capture) Add(data []byte) {
	c.Total += int64(len(data))
	if room := c.HeadLimit - len(c.Head); room > 0 {
		part := data[:min(room, len(data))]
		c.Head = append(c.Head, part...)
		if c.live != nil {
			// A full volume must not end the command; the content is written again at the end.
			_, _ = c.live.Write(part)
		}
		data = data[len(part):]
	}
	if surplus := len(data) - c.TailLimit; surplus > 0 {
		data = data[surplus:]
	}
	if room := c.TailLimit - len(c.tail); room > 0 {
		part := data[:min(room, len(data))]
		c.tail = append(c.tail, part...)
		data = data[len(part):]
	}
	for len(data) > 0 {
		count := copy(c.tail[c.next:], data)
		c.next = (c.next + count) % len(c.tail)
		data = data[count:]
	}
}

// Last returns the last bytes in their order.
func (c *Capture) Last() []byte {
	return append(append([]byte{}, c.tail[c.next:]...), c.tail[:c.next]...)
}

// pipe connects a stream of a command with its capture.
type pipe struct {
	kept   *Capture
	reader *os.File
	writer *os.File
	ended  chan struct{}
}

func newPipe(kept *Capture) (*pipe, error) {
	reader, writer, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	growPipe(writer)
	return &pipe{kept: kept, reader: reader, writer: writer, ended: make(chan struct{})}, nil
}

// follow reads until nobody holds the other end.
func (p *pipe) follow() {
	_ = p.writer.Close()
	go func() {
		defer close(p.ended)
		buffer := make([]byte, readBytes)
		for {
			count, err := p.reader.Read(buffer)
			p.kept.Add(buffer[:count])
			if err != nil {
				return
			}
		}
	}()
}

// finish takes what is left in the pipe and ends the reading.
func (p *pipe) finish() {
	_ = p.reader.SetReadDeadline(time.Now().Add(drainAllowance))
	<-p.ended
	p.close()
}

func (p *pipe) close() {
	_ = p.reader.Close()
	_ = p.writer.Close()
}
