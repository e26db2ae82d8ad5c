//go:build !amd64

package process

import "errors"

func (g *guard) hide() error {
	return errors.New("this processor is not known")
}
