package front

import (
	"context"
	"fmt"

	"github.com/go-json-experiment/json/jsontext"
)

type answersKey struct{}

// WithAnswers returns a context for [HTTP.Serve]. Before Serve sends an answer, it calls the function hold with the
// size of the answer. After it has sent the answer, it calls the function release. If hold fails, Serve sends an error
// instead of the answer.
func WithAnswers(ctx context.Context, hold func(size int64) (release func(), err error)) context.Context {
	return context.WithValue(ctx, answersKey{}, hold)
}

// HoldAnswer calls the function that was passed to [WithAnswers].
func HoldAnswer(ctx context.Context, size int) (release func(), err error) {
	hold, ok := ctx.Value(answersKey{}).(func(int64) (func(), error))
	if !ok {
		return func() {}, nil
	}
	if release, err = hold(int64(size)); err != nil {
		return nil, fmt.Errorf("the request was carried out, but its answer of %d KiB cannot be sent, because %w; "+
			"if the client repeats the request, it is carried out again", size>>10, err)
	}
	return release, nil
}

// hold returns the message that answers a request. If [HoldAnswer] fails, the message contains its error. The caller
// must call release when the message is sent.
func hold(ctx context.Context, id, result jsontext.Value, problem *rpcError) (m message, sent *rpcError, release func()) {
	m = answer(id, result, problem)
	release, err := HoldAnswer(ctx, m.size())
	if err != nil {
		problem = &rpcError{Code: internalError, Message: err.Error()}
		return answer(id, nil, problem), problem, func() {}
	}
	return m, problem, release
}
