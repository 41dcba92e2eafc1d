package daemon

// Meaning explains a code of the API's own to a person. Calls that are refused
// have the codes of [call.Meanings].
type Meaning struct{ Code, Title, Why, Fix string }

// Meanings explains every code that the API itself answers with. A test holds the
// handlers to it.
var Meanings = []Meaning{
	{"key_missing", "the request has no key", "All that a key protects wants it in the Authorization header, as Bearer and one key. Open are only /healthz, the console's own addresses, which hold a ticket, the metadata for signing in, and /metrics with --metrics-open.", "send Authorization: Bearer KEY; make a key with: ambit key new"},
	{"key_refused", "the key is not taken", "The key is not known here, has expired or was revoked, or the token is not one of the configured provider.", "make another key with: ambit key new, or sign in again; of a token the daemon's log says what is wrong"},
	{"forbidden", "the key does not open this", "The key is good, but it is limited to other agents, or this is for admin keys only.", "ask for a key for it: ambit key new --agents NAME, or ambit key new --admin"},
	{"bad_host", "the request names another host", "The Host header is neither this daemon's address nor a name it was told. A page whose name was made to point here would look like that.", "use the address that the daemon printed, or name the host: ambit serve --public-url URL"},
	{"bad_origin", "the request comes from another site's page", "A browser says that a page of another origin made the request, and no such page has any business here.", "call the API from a program, or from a page of the daemon's own origin"},
	{"bad_request", "the request cannot be read", "A parameter or the body is not what is asked for here: not JSON, a member twice, one that is unknown, or a value out of range.", "compare it with GET /api/v1/openapi.json"},
	{"too_large", "the request is too large", "A body has at most 32 MiB.", "send less"},
	{"timeout", "the request did not arrive in time", "The whole request has to arrive within a minute.", "send it faster, or in smaller parts"},
	{"method_not_allowed", "this is not asked for in that way", "The address is right, and takes other methods: they are in the header Allow.", "use one of those methods"},
	{"not_found", "there is nothing of that name", "There is no such address, agent, approval or intent, or it is gone.", "list agents with ambit agents, approvals with ambit approvals; addresses are in GET /api/v1/openapi.json"},
	{"conflict", "it is too late for that", "What was asked for does not fit what has happened meanwhile: it was decided before, or has expired or ended.", "look at it again, and decide on what is there now"},
	{"agent_rejected", "the agent cannot be served", "The agent's manifest is invalid, or it may not run here. The other agents go on.", "see why: ambit agents; mend it, then: ambit reload"},
	{"reload_failed", "nothing was reloaded", "The folder or the certificate cannot be read, an agent that works would be replaced by one that cannot be served, one is rejected under --strict, or the daemon is ending. Everything is as before.", "mend what the message says, and reload again"},
	{"starting", "agents are still being proven", "The daemon has just started, and its first look at every agent is not over.", "ask again in a moment; requests to agents are taken already"},
	{"shutting_down", "the daemon is ending", "It finishes the calls it has and takes no others.", "try again when it is back, or at another daemon of the same store"},
	{"unavailable", "something the daemon needs is not there", "The store, or what checks keys, does not answer. Whoever cannot be known is not let in, and what cannot be kept is not done.", "the daemon's log says why; ambit doctor checks the store"},
}
