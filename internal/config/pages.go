package config

import "downlink/internal/cors"

// checkOrigins checks which pages may read.
func (c *Config) checkOrigins(add func(name, reason string)) {
	origins := c.Origins.Items()
	for _, origin := range origins {
		if reason := cors.Fault(origin); reason != "" {
			add("cors_origins", "holds an origin that "+reason)
		}
		if origin == cors.Any && len(origins) > 1 {
			add("cors_origins", "has * beside other origins; write * alone, or only the others: with *, no page may send cookies")
		}
	}
}
