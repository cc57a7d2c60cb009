package config

import (
	"fmt"
	"reflect"
	"strings"
	"time"

	"github.com/alecthomas/kong"
)

// A Loader fills a Config from command line, environment and file while kong
// parses the command line, and remembers where each value came from. Values
// that can't be read don't stop it: Check reports them with all the others.
// Use one Loader for one parse.
type Loader struct {
	// Set at construction.
	environ map[string]string
	known   map[string]Key // by name in the file

	command string // whose settings are checked and shown

	// Filled while parsing.
	read     bool
	file     map[string]fileValue
	path     string
	origins  map[string]Origin // by name in the file
	problems Problems
}

// NewLoader takes the environment, as os.Environ returns it.
func NewLoader(environ []string) *Loader {
	l := &Loader{
		environ: make(map[string]string),
		known:   make(map[string]Key),
		origins: make(map[string]Origin),
		command: Serve,
	}
	for _, pair := range environ {
		name, value, _ := strings.Cut(pair, "=")
		if strings.HasPrefix(name, EnvPrefix) {
			l.environ[name] = value
		}
	}
	for _, k := range Keys() {
		l.known[k.Name] = k
	}
	return l
}

// As makes it the loader of a command's settings: Serve, which it is from the
// start, or Dial. Those of the other one are then a mistake on the command line,
// and without effect elsewhere.
func (l *Loader) As(command string) { l.command = command }

// Command is the one whose settings these are.
func (l *Loader) Command() string { return l.command }

// Hide leaves the settings of other commands out of a command's help.
func (l *Loader) Hide(node *kong.Node, command string) {
	for _, flag := range node.Flags {
		if key, ok := l.setting(flag.Value); ok && !key.For(command) {
			flag.Hidden = true
		}
	}
}

// Load reads a Config without any command around it; args are flags.
func Load(args, environ []string) (*Config, error) {
	var c Config
	l := NewLoader(environ)
	parser, err := kong.New(&c, append(l.Options(), kong.Name("downlink"))...)
	if err != nil {
		return nil, err
	}
	if _, err := parser.Parse(args); err != nil {
		return nil, err
	}
	if err := l.Check(&c); err != nil {
		return nil, err
	}
	return &c, nil
}

// Options make a kong parser, whose grammar holds a Config, use the loader.
func (l *Loader) Options() []kong.Option {
	return []kong.Option{
		kong.TypeMapper(reflect.TypeFor[time.Duration](), l.mapper()),
		kong.TypeMapper(reflect.TypeFor[Bytes](), l.mapper()),
		kong.TypeMapper(reflect.TypeFor[int](), l.mapper()),
		kong.TypeMapper(reflect.TypeFor[List](), listMapper()),
		kong.Resolvers(kong.ResolverFunc(l.resolve)),
		kong.ValueFormatter(helpText),
	}
}

// mapper reads what parse reads. A setting that can't be read is remembered
// for Check; any other flag fails at once, as is usual on a command line.
func (l *Loader) mapper() kong.Mapper {
	return kong.MapperFunc(func(ctx *kong.DecodeContext, target reflect.Value) error {
		var text string
		if err := ctx.Scan.PopValueInto("value", &text); err != nil {
			return err
		}
		value, err := parse(target.Type(), text)
		if err == nil {
			target.Set(value)
			return nil
		}
		key, ok := l.setting(ctx.Value)
		if !ok {
			return err
		}
		l.unreadable(key, text, l.origin(key), err)
		return nil
	})
}

// resolve gives kong the value that environment or file have for a flag that
// isn't on the command line.
func (l *Loader) resolve(ctx *kong.Context, _ *kong.Path, flag *kong.Flag) (any, error) {
	key, ok := l.setting(flag.Value)
	if !ok {
		return nil, nil
	}
	l.readFileOnce(ctx)
	text, origin := l.lookup(key)
	if origin.Source == FromDefault {
		return nil, nil
	}
	l.origins[key.Name] = origin
	if flag.IsBool() { // kong's own reader of switches would stop at the first mistake
		if _, err := parse(reflect.TypeFor[bool](), text); err != nil {
			l.unreadable(key, text, origin, err)
			return nil, nil
		}
	}
	return text, nil
}

func (l *Loader) lookup(key Key) (string, Origin) {
	// An empty variable counts as absent: compose files and charts often set
	// a variable to nothing when nothing is meant.
	if text := l.environ[key.Env]; text != "" {
		return text, Origin{FromEnvironment, key.Env}
	}
	if v, ok := l.file[key.Name]; ok {
		return v.text, Origin{FromFile, fmt.Sprintf("%s:%d", l.path, v.line)}
	}
	return "", Origin{Source: FromDefault}
}

// readFileOnce reads the file that --config or DOWNLINK_CONFIG names, if any.
// It also notes which settings are on the command line.
func (l *Loader) readFileOnce(ctx *kong.Context) {
	if l.read {
		return
	}
	l.read = true
	l.path = l.environ[EnvPrefix+"CONFIG"]
	for _, p := range ctx.Path {
		if p.Flag == nil {
			continue
		}
		if key, ok := l.setting(p.Flag.Value); ok {
			l.origins[key.Name] = Origin{FromFlag, key.Flag}
		} else if p.Flag.Name == "config" {
			l.path = fmt.Sprint(ctx.FlagValue(p.Flag))
		}
	}
	if l.path == "" {
		return
	}
	var problems Problems
	l.file, problems = readFile(l.path, l.known)
	l.problems = append(l.problems, problems...)
}

// setting finds the Key of a kong value. The tag tells a setting from a flag
// of another command that happens to have the same name.
func (l *Loader) setting(v *kong.Value) (Key, bool) {
	if !v.Tag.Has("allowed") {
		return Key{}, false
	}
	key, ok := l.known[strings.ReplaceAll(v.Name, "-", "_")]
	return key, ok
}

func (l *Loader) unreadable(key Key, text string, origin Origin, err error) {
	l.problems = append(l.problems, Problem{
		Key: key.Name, Value: key.show(text), Origin: origin,
		Reason: fmt.Sprintf("%v; allowed: %s", err, key.Allowed),
	})
}

// origin is where the value of a setting comes from. Before the file is read,
// kong reads nothing but the command line.
func (l *Loader) origin(key Key) Origin {
	if o, ok := l.origins[key.Name]; ok {
		return o
	}
	if !l.read {
		return Origin{FromFlag, key.Flag}
	}
	return Origin{Source: FromDefault}
}

// helpText adds to a setting's help what it allows and its other spellings.
func helpText(v *kong.Value) string {
	if !v.Tag.Has("allowed") {
		return kong.DefaultHelpValueFormatter(v)
	}
	return fmt.Sprintf("%s Allowed: %s. ($%s)", v.Help, v.Tag.Get("allowed"), envName(v.Name))
}
