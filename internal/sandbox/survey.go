package sandbox

// Finding is what was found out about one mechanism.
type Finding struct {
	Name        string
	OK          bool
	Detail, Fix string
}
