"""SDKs of others, as their users run them, against this service. Collected where the SDK is installed."""
