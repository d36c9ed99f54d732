// Package bench measures a server over HTTP. It has its own small HTTP/1.1 client
// (prebuilt request bytes, one write and little parsing a request), so that a server
// on the same machine is not slowed by its measurer. Not for other uses: it follows no
// redirects, and takes the server's answers to be well formed.
package bench
