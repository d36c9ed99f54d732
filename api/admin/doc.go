// Package admin is the HTTP door to what administrators see and set beyond users, rules and
// topics. Each resource has its file; the handlers decode, call and encode, and the rules are
// in auth, broker and cluster/metadata.
package admin
