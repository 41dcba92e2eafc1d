package daemon

// Meaning explains an error code of the API. [call.Meanings] explains the codes of refused calls.
type Meaning struct{ Code, Title, Why, Fix string }

// Meanings explains every error code that the API itself answers with; a test compares it with the
// handlers.
var Meanings = []Meaning{
	{"key_missing", "the request has no key", "Protected addresses require one key in the Authorization header, as a Bearer token. Only /healthz, addresses with a ticket, the sign-in metadata and, with --metrics-open, /metrics are open.", "send Authorization: Bearer KEY; create a key with: ambit key new"},
	{"key_refused", "the key was rejected", "The key is unknown, expired or revoked, or the token was not issued by the configured provider.", "create another key with: ambit key new, or sign in again; the daemon's log has the reason for a token"},
	{"forbidden", "the key has no access to this", "The key is valid, but it is limited to other agents, or this address needs an admin key.", "request a key for it: ambit key new --agents NAME, or ambit key new --admin"},
	{"bad_host", "the request names another host", "The Host header is neither this daemon's address nor its public name. A DNS rebinding attack looks like this.", "use the address that the daemon printed, or set the name: ambit serve --public-url URL"},
	{"bad_origin", "the request comes from another site's page", "The browser reports that a page of another origin made the request. The daemon accepts no such requests.", "call the API from a program, or from a page of the daemon's own origin"},
	{"bad_request", "the request is invalid", "A parameter or the body is invalid: not JSON, a duplicate or unknown member, or a value out of range.", "compare it with GET /api/v1/openapi.json"},
	{"too_large", "the request is too large", "The limit for a request body is 32 MiB.", "send less"},
	{"timeout", "the request did not arrive in time", "The whole request must arrive within a minute.", "send it faster, or in smaller parts"},
	{"method_not_allowed", "the method is not allowed here", "The address exists, but accepts other methods. The Allow header lists them.", "use one of those methods"},
	{"not_found", "there is nothing with this name", "The address, agent, approval or intent does not exist, or no longer exists.", "list agents with ambit agents, approvals with ambit approvals; GET /api/v1/openapi.json lists the addresses"},
	{"conflict", "the state has changed meanwhile", "The approval or intent was already decided, has expired or has ended.", "read it again, then decide"},
	{"agent_rejected", "the agent cannot be served", "The agent's manifest is invalid, or it may not run here. The other agents are served.", "see the reason: ambit agents; fix it, then run: ambit reload"},
	{"reload_failed", "the reload changed nothing", "The folder or the certificate cannot be read, a working agent would be replaced by one that cannot be served, an agent is rejected under --strict, or the daemon is shutting down. The daemon continues as before.", "fix the problem in the message, then reload again"},
	{"starting", "agents are still being proven", "The daemon has just started and has not yet proven every agent.", "retry in a moment; agents accept requests already"},
	{"shutting_down", "the daemon is shutting down", "It finishes its open calls and accepts no others.", "retry when it is running again, or use another daemon of the same store"},
	{"unavailable", "a service that the daemon needs is unavailable", "The store or the key check does not answer. The daemon rejects requests that it cannot authenticate or record.", "the daemon's log has the reason; ambit doctor checks the store"},
}
