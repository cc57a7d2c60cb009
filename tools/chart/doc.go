// Package chart tests what stands in deploy: the Helm chart, its alerts and its
// dashboard, the image, the compose file and the systemd unit. It owns no code that
// runs anywhere else, and has a module of its own, so that the libraries of Helm and
// Kubernetes stay out of the product's. Its invariant: nothing is taken on trust
// that a program can check.
package chart
