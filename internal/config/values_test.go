package config

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestSizesHaveUnits(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]Size{
		"0": 0, "000": 0, "0B": 0, "1B": 1, "1kB": 1000, "1KiB": 1024, "3MB": 3e6, "3MiB": 3 << 20, "2GB": 2e9,
		"2GiB": 2 << 30, "1TB": 1e12, "1TiB": 1 << 40, "256 MiB": 256 << 20, "007kB": 7000,
		"9223372036854775807B": math.MaxInt64, "8388607TiB": 8388607 << 40,
	} {
		got, err := ParseSize(text)
		require.NoError(t, err, text)
		require.Equal(t, want, got, text)
	}
	for _, text := range []string{
		"", " ", "B", "1", "-1B", "-", "+1B", "1.5GiB", "1e3B", "1K", "1KB", "1mb", "1 M iB", "1MiB ", " 1MiB", "１B",
		"9223372036854775808B", "8388608TiB", "9007199254740992KiB", "99999999999999999999B",
	} {
		_, err := ParseSize(text)
		require.Error(t, err, text)
	}
}

func TestSizeIsPrintedInTheShortestExactForm(t *testing.T) {
	t.Parallel()
	for size, want := range map[Size]string{0: "0B", 999: "999B", 1000: "1kB", 1024: "1KiB", 1536: "1536B", 256 << 20: "256MiB", 5e9: "5GB", math.MaxInt64: "9223372036854775807B"} {
		require.Equal(t, want, size.String())
	}
	rapid.Check(t, func(t *rapid.T) {
		s := Size(rapid.Int64Range(0, math.MaxInt64).Draw(t, "bytes"))
		if u := rapid.SampledFrom(sizeUnits()).Draw(t, "unit"); rapid.Bool().Draw(t, "whole") {
			s = s / Size(u.bytes) * Size(u.bytes)
		}
		back, err := ParseSize(s.String())
		require.NoError(t, err)
		require.Equal(t, s, back)
	})
}

func TestAddressesComeOutNormalised(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		":0": ":0", "127.0.0.1:08080": "127.0.0.1:8080", "Host.Example.:1": "host.example.:1", "[::1]:65535": "[::1]:65535",
		"[FE80::1%Eth0]:1": "[fe80::1%Eth0]:1", "my_host-1:2": "my_host-1:2", "0.0.0.0:1": "0.0.0.0:1",
	} {
		got, err := checkListen(text)
		require.NoError(t, err, text)
		require.Equal(t, want, got, text)
	}
	for _, text := range []string{"", ":", "a", "a:", "a:-1", "a:+1", "a: 1", "a b:1", "-a:1", "a-:1", "a..b:1", "1.2.3:1", "[]:1", "[127.0.0.1]:1", "*:1", "a:1:2", "a/b:1", "[::1]"} {
		_, err := checkListen(text)
		require.Error(t, err, text)
	}
}

func TestPathPrefixComesOutWithoutTheLastSlash(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{"/": "", "/a": "/a", "/a/": "/a", "/a/b.c/": "/a/b.c", "/x/y": "/x/y"} {
		got, err := checkPathPrefix(text)
		require.NoError(t, err, text)
		require.Equal(t, want, got, text)
	}
	for _, text := range []string{"//", "a", "/a//b", "/.", "/ä", "/a b", "/a?b", "/a#b", "/a\\b"} {
		_, err := checkPathPrefix(text)
		require.Error(t, err, text)
	}
}

func TestOriginsComeOutAsBrowsersSendThem(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"*": "*", "HTTPS://App.Example.COM": "https://app.example.com", "http://localhost:3000": "http://localhost:3000",
		"https://a:443": "https://a", "http://a:80": "http://a", "https://a:80": "https://a:80", "http://[::1]:5173": "http://[::1]:5173",
	} {
		got, err := checkOrigin(text)
		require.NoError(t, err, text)
		require.Equal(t, want, got, text)
	}
	for _, text := range []string{"null", "a", "a.example", "https://", "https://a/", "https://a?b", "https://a?", "https://a#b", "https://a#", "https://u@a", "https://*.a", "https://a:", "https://a:0", "https://a:99999", "https://a b"} {
		_, err := checkOrigin(text)
		require.Error(t, err, text)
	}
}

func TestProxiesComeOutAsRanges(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{"10.0.0.1": "10.0.0.1/32", "10.1.2.3/8": "10.0.0.0/8", "::1": "::1/128", "fd00::1/8": "fd00::/8"} {
		got, err := checkProxy(text)
		require.NoError(t, err, text)
		require.Equal(t, want, got, text)
	}
	for _, text := range []string{"", "a", "10.0.0.1/33", "fe80::1%eth0", "10.0.0.0/-1", "10.0.0.1:80"} {
		_, err := checkProxy(text)
		require.Error(t, err, text)
	}
}
