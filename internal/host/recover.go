package host

import "time"

// recoverEvery is how often calls of dead processes are looked for.
const recoverEvery = 15 * time.Second

// recover takes over calls that other processes left when they died, for as long
// as the agent lives.
func (a *Agent) recover() {
	select {
	case <-a.opened:
	case <-a.ctx.Done():
		return
	}
	if a.door == nil {
		return
	}
	ticker := time.NewTicker(recoverEvery)
	defer ticker.Stop()
	for {
		// What is sent again needs servers that are up.
		if a.trouble() == nil {
			if err := a.currentDoor().Recover(a.ctx); err != nil && a.ctx.Err() == nil {
				a.options.Log("store", "calls of ended processes cannot be looked for: "+err.Error())
			}
		}
		select {
		case <-ticker.C:
		case <-a.ctx.Done():
			return
		}
	}
}
