package main

import (
	"errors"
	"fmt"
)

// copyTree is the job of the init container that takes an image's folder into the workspace.
func copyTree(text string, _ <-chan struct{}) message {
	var spec copySpec
	err := decode(text, &spec)
	if err == nil && spec.Version != 1 {
		err = fmt.Errorf("specification: version %d is not known", spec.Version)
	}
	if err == nil {
		err = absolute([]string{spec.From, spec.To})
	}
	if err != nil {
		return failure(codeOwnFault, err)
	}
	if err := transfer(transferSpec{spec.From, spec.To}, nil); err != nil {
		return failure(codeStaging, err)
	}
	return message{V: 1, Code: codeDone}
}

// transfer copies the content of one folder into another.
func transfer(spec transferSpec, protected []string) error {
	target, err := openPlace(spec.To, protected)
	if err != nil {
		return err
	}
	return errors.Join(copyInto(target, spec.From), target.close())
}
