// Package openapitest checks HTTP answers against the OpenAPI document, so that
// the document cannot say one thing and a node do another. API tests hand it every
// exchange they make.
package openapitest
