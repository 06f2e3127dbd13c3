"""The second factor of staff: codes of an authenticator app (TOTP, RFC 6238), and recovery codes for a lost one."""
