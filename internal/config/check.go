package config

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"strconv"
	"strings"

	"tidewire/internal/model"
)

func checkPath(t string) (string, error) { return t, nil }

func checkDataDir(t string) (string, error) {
	if t == "" {
		return "", errors.New("must not be empty")
	}
	return t, nil
}

func checkRack(t string) (string, error) {
	if p := model.CheckName(t); p != "" {
		return "", fmt.Errorf("%s %s", quote(t), p)
	}
	return t, nil
}

// checkListen accepts host:port where the host may be empty (every interface).
func checkListen(t string) (string, error) {
	host, port, err := splitAddress(t)
	if err != nil {
		return "", err
	}
	return net.JoinHostPort(host, port), nil
}

// checkAdvertise accepts an address that others can dial; port 0 stands for the
// port in use.
func checkAdvertise(t string) (string, error) {
	host, port, err := splitAddress(t)
	if err != nil {
		return "", err
	}
	if ip, err := netip.ParseAddr(host); host == "" || err == nil && ip.IsUnspecified() {
		return "", fmt.Errorf("%s names no host that others can reach", quote(t))
	}
	return net.JoinHostPort(host, port), nil
}

// checkDialAddress is checkAdvertise without port 0.
func checkDialAddress(t string) (string, error) {
	out, err := checkAdvertise(t)
	if err == nil && strings.HasSuffix(out, ":0") {
		return "", fmt.Errorf("%s names no port", quote(t))
	}
	return out, err
}

func splitAddress(t string) (host, port string, err error) {
	host, port, err = net.SplitHostPort(t)
	if err != nil {
		if _, isIP := netip.ParseAddr(t); isIP == nil && strings.Contains(t, ":") {
			return "", "", fmt.Errorf("%s is not host:port (an IPv6 address goes in brackets: [::1]:8080)", quote(t))
		}
		return "", "", fmt.Errorf("%s is not host:port", quote(t))
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		return "", "", fmt.Errorf("%s: the port is not a number from 0 to 65535", quote(t))
	}
	if err := checkHost(host, strings.HasPrefix(t, "[")); err != nil {
		return "", "", fmt.Errorf("%s: %w", quote(t), err)
	}
	name, zone, _ := strings.Cut(host, "%") // a zone is an interface's name, as written
	return strings.ToLower(name) + host[len(name):len(host)-len(zone)] + zone, strconv.FormatUint(n, 10), nil
}

func checkHost(host string, bracketed bool) error {
	if host == "" && !bracketed {
		return nil
	}
	if ip, err := netip.ParseAddr(host); bracketed || err == nil {
		if err != nil || ip.Is4() == bracketed {
			return errors.New("brackets are for IPv6 addresses")
		}
		return nil
	}
	labels := strings.Split(strings.TrimSuffix(host, "."), ".")
	if len(host) > 253 || strings.Trim(labels[len(labels)-1], "0123456789") == "" {
		return errors.New("the host is neither an IP address nor a host name")
	}
	for _, l := range labels {
		if !hostLabel(l) {
			return errors.New("a host name has only labels of A-Z a-z 0-9 - _ between dots (write other scripts in punycode)")
		}
	}
	return nil
}

func hostLabel(l string) bool {
	for i := range len(l) {
		if c := l[i]; !alphanumeric(c) && c != '-' && c != '_' {
			return false
		}
	}
	return l != "" && len(l) <= 63 && l[0] != '-' && l[len(l)-1] != '-'
}

func alphanumeric(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
}

// checkPathPrefix gives "/a/b" for "/a/b" and "/a/b/", and "" for "/". Only
// characters that no proxy rewrites (RFC 3986, unreserved) are accepted.
func checkPathPrefix(t string) (string, error) {
	if !strings.HasPrefix(t, "/") {
		return "", fmt.Errorf("%s does not begin with a slash", quote(t))
	}
	out := strings.TrimSuffix(t, "/")
	if out == "" {
		return "", nil
	}
	for segment := range strings.SplitSeq(out[1:], "/") {
		if segment == "" || segment == "." || segment == ".." {
			return "", fmt.Errorf("%s has an empty, . or .. segment", quote(t))
		}
		for i := range len(segment) {
			if c := segment[i]; !alphanumeric(c) && !strings.ContainsRune("-._~", rune(c)) {
				return "", fmt.Errorf("%s may hold only A-Z a-z 0-9 - . _ ~ between slashes", quote(t))
			}
		}
	}
	return out, nil
}

// checkOrigin accepts what a browser sends as Origin (RFC 6454), and "*".
func checkOrigin(t string) (string, error) {
	bad := fmt.Errorf("%s is not an origin such as https://app.example.com or http://localhost:3000, or *", quote(t))
	if t == "*" {
		return t, nil
	}
	u, err := url.Parse(strings.ToLower(t))
	if err != nil || u.Scheme == "" || u.Host == "" || u.User != nil || u.Path != "" || u.RawQuery != "" || u.ForceQuery || strings.Contains(t, "#") {
		return "", bad
	}
	host, port := u.Hostname(), u.Port()
	if checkHost(host, strings.HasPrefix(u.Host, "[")) != nil || strings.HasSuffix(u.Host, ":") {
		return "", bad
	}
	if port == "" {
		return u.String(), nil
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return "", bad
	}
	if u.Scheme == "http" && port == "80" || u.Scheme == "https" && port == "443" {
		u.Host = strings.TrimSuffix(u.Host, ":"+port) // browsers leave it out
	}
	return u.String(), nil
}

// checkProxy gives a prefix in CIDR form for an IP address or a prefix.
func checkProxy(t string) (string, error) {
	if ip, err := netip.ParseAddr(t); err == nil && ip.Zone() == "" {
		return netip.PrefixFrom(ip, ip.BitLen()).String(), nil
	}
	p, err := netip.ParsePrefix(t)
	if err != nil {
		return "", fmt.Errorf("%s is neither an IP address nor a CIDR range such as 10.0.0.0/8", quote(t))
	}
	return p.Masked().String(), nil
}

// loopback reports whether a checked listening address is reachable from this
// machine only. Of names only localhost is: others would need a look-up.
func loopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return false
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.IsLoopback() || strings.EqualFold(host, "localhost")
}
