"""The dialect of PostgreSQL, with its connections, pool and bulk reads."""
