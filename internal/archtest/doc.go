// Package archtest holds the rules of the house as tests over the source tree:
// which package may import which and which libraries are fenced in (imports), how
// large things may get (sizes), which calls are banned where (calls), and that
// tracked files speak of the project only (words). Each denial says why. Each rule
// is itself tested against a small tree that breaks it.
//
// A new package needs a row in the table of imports. An exception to a size may
// only shrink: the test fails when it has become smaller or is not needed any more.
package archtest
