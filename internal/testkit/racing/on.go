//go:build race

package racing

const enabled = true
