package untrusted

import (
	"bytes"
	"encoding/binary"
	"slices"
)

const (
	firstBlock = 1 << 10
	blockBits  = 16
	maxBlock   = 1 << blockBits
	nameLength = 2 // bytes that hold how long a name is
)

// nameList holds the names of a folder in six bytes more than they have: with the bound on names, no number
// of files fills the courier's memory.
type nameList struct {
	blocks    [][]byte // never grown, so that nothing is there twice
	positions []uint32 // block and offset
}

func (l *nameList) add(name string) {
	last := len(l.blocks) - 1
	if last < 0 || len(l.blocks[last])+nameLength+len(name) > cap(l.blocks[last]) {
		size := firstBlock
		if last >= 0 {
			size = min(2*cap(l.blocks[last]), maxBlock)
		}
		l.blocks = append(l.blocks, make([]byte, 0, size))
		last++
	}
	l.positions = append(l.positions, uint32(last<<blockBits|len(l.blocks[last])))
	l.blocks[last] = binary.LittleEndian.AppendUint16(l.blocks[last], uint16(len(name)))
	l.blocks[last] = append(l.blocks[last], name...)
}

func (l *nameList) count() int { return len(l.positions) }

func (l *nameList) at(index int) []byte { return l.read(l.positions[index]) }

func (l *nameList) read(position uint32) []byte {
	rest := l.blocks[position>>blockBits][position&(maxBlock-1):]
	return rest[nameLength:][:binary.LittleEndian.Uint16(rest)]
}

func (l *nameList) sort() {
	slices.SortFunc(l.positions, func(a, b uint32) int { return bytes.Compare(l.read(a), l.read(b)) })
}
