"""Work that is handed to a server: masked completion (obfuscation) and secure aggregation (private)."""
