// Package genclient is a client of Tidewire's HTTP interface as a user would make
// one: generated from the OpenAPI document by oapi-codegen. It is a module of its
// own, so that neither the generator nor what the client needs enters Tidewire's
// go.mod. Its test uses the client against a running node.
package genclient

//go:generate go tool oapi-codegen -config oapi-codegen.yaml ../../../openapi/openapi.json
