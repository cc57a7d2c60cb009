package config

import "strings"

// checkGovernor checks what a governor for other programs watches.
func (c *Config) checkGovernor(add func(name, reason string)) {
	if strings.HasPrefix(c.Log, "file:") && c.GovernorFile == "" {
		add("log", "can't be watched: an embedded log belongs to one gateway, which has a governor itself; name the Redis that is to be watched, such as redis://h:6379, or with governor_file groups of Kafka")
	}
}
