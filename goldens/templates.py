"""Writes what Python's Jinja, set up as transformers sets it up, makes of expressions and of whole chat templates.

    python goldens/templates.py    crates/text/tests/data/{expressions,families}.json

Needs the Python packages jinja2 and transformers. The templates of `families` are written here in the shape of those that
the ten model families most used publish, without their words; the published ones that `models/tokenizers` holds are
rendered too, and only the renderings are kept.
"""

import json

from text import CALL, DATA, FIXED_SECONDS, ROOT, TOOLS, environment, write

# --------------------------------------------------------------------------------------------------------- expressions

VARIABLES = {
    "s": "Hello, World",
    "p": "  padded \n",
    "u": "Grüße 🦀 日本",
    "e": "",
    "n": 42,
    "f": 2.5,
    "big": 12345678901234567890,
    "none": None,
    "yes": True,
    "items": [3, 1, 2],
    "words": ["b", "A", "c"],
    "empty": [],
    "d": {"b": 1, "a": [1, 2.0, None, True], "c": {"x": "y'z"}},
    "users": [
        {"name": "Ann", "age": 30, "role": "user"},
        {"name": "Bob", "age": 25, "role": "assistant"},
        {"name": "Cy", "age": 30, "role": "user"},
    ],
    "think": "<think>\nhm\n</think>\n\nBecause.",
}

EXPRESSIONS = """
s|upper
s|lower
s|title
s|capitalize
p|trim
s|trim('Hd')
s|replace('l','L')
s|replace('l','L',2)
s|length
items|length
d|length
items|first
items|last
empty|first
items|sum
items|min
items|max
items|sort
items|sort(reverse=true)
words|sort
words|sort(case_sensitive=true)
users|sort(attribute='age')|map(attribute='name')|join(',')
items|reverse|list
s|reverse
items|join
items|join('-')
words|join(', ')
users|map(attribute='name')|list
users|map(attribute='age')|sum
users|map(attribute='zip', default='?')|list
words|map('upper')|list
users|selectattr('role','equalto','user')|map(attribute='name')|list
users|selectattr('role','==','user')|list|length
users|selectattr('age')|list|length
users|rejectattr('role','eq','user')|map(attribute='name')|list
users|rejectattr('zip')|list|length
items|select('odd')|list
items|reject('odd')|list
items|select('>', 1)|list
items|select('in', [1,3])|list
d.keys()|reject('in', ['a'])|list
d|items|list
d.items()|list
d|dictsort
d|list
d.keys()|list
d.values()|list
d.get('a')
d.get('zz')
d.get('zz','w')
d['b']
d.b
d.zz
d.zz is defined
d.c.x
items[0]
items[-1]
items[1:]
items[::-1]
items[:-1]
items[5:]
s[0]
s[-1]
s[1:4]
s[::-1]
s[:-1]
u[6]
u[6:]
u|length
none
none|string
yes
yes|string
not yes
n
f
f|string
1.0
1e20
1e-7
0.1+0.2
100.0
3.0|int
f|round
2.567|round(2)
2.567|round(1,'floor')
7//2
-7//2
7%3
-7%3
7/2
6/2
2**10
2**-1
2**0.5
n+1
n-0.5
n*'ab'
'ab'*3
'ab'+'cd'
'ab'~1~none~true~1.5
[1]+[2]
[1,[2,'x'],{'k':'v'},none,true,1.0]
{'a':1,'b':[1,'two']}
('a','b')
(1,)
'it\\'s'
["it's"]
['say "hi"']
['both \\' and "']
['é\\n\\t\\\\']
['🦀']
u
[u]
n is number
f is float
n is integer
n is float
yes is boolean
yes is number
s is string
items is sequence
items is iterable
s is iterable
s is sequence
d is mapping
items is mapping
none is none
zz is undefined
zz is defined
zz is none
n is odd
n is even
n is divisibleby(7)
s is lower
s is upper
'abc' is lower
n is eq(42)
n is sameas(42)
yes is sameas(true)
n is in([42])
n is true
yes is true
n is callable
s is filter
'upper' is filter
'odd' is test
n == 42
n == 42.0
'a' == 1
none == false
1 == true
'1' == 1
1 < 2 < 3
1 < 2 and 2 < 1
none or 'x'
'' or 'x'
0 and 1
'a' and 'b'
not none
'a' if yes else 'b'
'a' if none
3 in items
'lo' in s
'zz' in s
'b' in d
'z' not in d
none in items
s in u
s.upper()
s.lower()
s.title()
s.capitalize()
s.swapcase()
p.strip()
p.lstrip()
p.rstrip()
s.strip('Hd')
s.lstrip('He')
s.rstrip('dl')
s.split(', ')
s.split(',', 1)
'a  b c'.split()
'a b c'.split(' ', 1)
'a  b c'.split(none, 1)
'a,b,c'.rsplit(',', 1)
'a\\nb\\r\\nc'.splitlines()
'a\\nb'.splitlines(true)
s.startswith('He')
s.startswith(('x','He'))
s.endswith('ld')
s.find('o')
s.find('zz')
s.find('o', 5)
s.rfind('o')
s.index('o')
s.count('l')
s.replace('l','L')
s.replace('l','L',1)
', '.join(words)
'-'.join('abc')
s.isupper()
'12'.isdigit()
'ab1'.isalnum()
'ab'.isalpha()
' '.isspace()
''.isspace()
'Ab'.istitle()
'12'.isdecimal()
'1.5'.isnumeric()
'ab'.isidentifier()
'ab'.center(6)
'ab'.center(7,'*')
'ab'.ljust(4)~'|'
'ab'.rjust(4)
'ab'.ljust(4,'.')
'7'.zfill(3)
'-7'.zfill(4)
'a\\tb'.expandtabs(4)
'prefix-x'.removeprefix('prefix-')
'x.txt'.removesuffix('.txt')
'a=b=c'.partition('=')
'a=b=c'.rpartition('=')
'{} {}'.format(1,'x')
'{0}-{1}-{0}'.format('a','b')
'{x}'.format(x=5)
'{:>5}|{:<5}|{:^5}'.format('a','b','c')
'{:.2f}'.format(3.14159)
'{:03d}'.format(7)
'%s'|format('x')
'%s is %d'|format('x', 3)
'%05.1f'|format(2.25)
'%(a)s'|format(a=1)
'%s' % 'x'
'%s' % n
'%s and %s' % ('a', 'b')
'%d%%' % 50
'%.2f' % f
'%03d' % 7
'%s' % s|upper
('%s' % s)|upper
'%-5s|' % 'ab'
'%x' % 255
"%s" % d.b
'%s' % users[0].name
'a' ~ '%s' % 1 ~ 'b'
'%s' % (none,)
'%s %s' % ('a',)
'ß'.upper()
'ß'.casefold()
'İ'.lower()
s|default('x')
zz|default('x')
''|default('x')
''|default('x', true)
none|default('x')
none|d('x', true)
zz|d
'3'|int
'x'|int
'x'|int(7)
'0x1A'|int(base=16)
'3.7'|float
'x'|float
'3.7'|int
-5|abs
n|string|length
items|string
'a b c'|wordcount
s|list
d|tojson
none|tojson
s|tojson
u|tojson
[1,2]|tojson(indent=2)
{}|tojson
[]|tojson(indent=2)
d|tojson(true)
u|tojson(ensure_ascii=true)
u|tojson(true)
d|tojson(sort_keys=true)
d|tojson(false, 1)
(1,2)|tojson
big
big|tojson
big + 1
items|batch(2)|list
items|batch(2,'x')|list
range(7)|slice(3)|list
range(3)|list
range(1,10,3)|list
range(5,0,-2)|list
range(3)|join(',')
items|unique|list
words|unique|list
['a','A','b']|unique|list
users|groupby('age')|list|length
users|map(attribute='name')|map('lower')|join(' ')
users|selectattr('age','>',26)|map(attribute='name')|list
users|sum(attribute='age')
d.c|items|list
d|items|first
dict(a=1,b=2)
dict(a=1)|tojson
namespace(a=1).a
s|indent(2)
'a\\nb\\nc'|indent(2)
'a\\nb'|indent(2,true)
'a\\n\\nb'|indent(2)
'a\\nb'|indent('>>')
'a\\nb'|indent(width=2, first=true)
'<b>'|escape
'<b>'|e
'<b>'|safe
think.split('</think>')[0].rstrip('\\n').split('<think>')[-1].lstrip('\\n')
think.split('</think>')[-1].lstrip('\\n')
'</think>' in think
think.find('</think>')
think|replace('<think>','')|trim
[1,2,3][1]
{'a':{'b':2}}.a.b
'abc'[1]
'abc'[5]
items[7]
items[7] is defined
zz.y
none.y
none.y is defined
s.foo is defined
s.foo
items|tojson|length
1 if zz else 2
zz
zz ~ 'x'
zz + 'x'
zz == none
zz|length
zz|list
1 + 'x'
'x' + 1
s()
raise_exception('no')
'a'|nofilter
n is notest
items.append(4)
items.index(2)
items.count(2)
d.update({'q':1})
d.pop('b')
d.copy()
'%s'.__class__
s.__class__
''.__class__.__mro__
loop is defined
true and true
True
False
None
'\\u00e9'
'\\x41'
"a\\"b"
1_000
0x10
0b11
0o17
.5
-n
--n
not not yes
(n, f)
[x for x in items]
items is not none
'a' not in words
n is not odd
'abc'|first
'abc'|last
'abc'|list|join('|')
'b' < 'a'
'a' < 'b'
[1,2] < [1,3]
[1,2] == [1,2]
{'a':1} == {'a':1}
none is sameas none
2 is divisibleby 2
n is gt 3
n is ge(42)
n is ne 3
n is lessthan(50)
s|string is string
1|string + '2'
[3,1]|sort|first
[[2,'b'],[1,'a']]|sort
{'b':2,'a':1}|dictsort(by='value')
{'B':2,'a':1}|dictsort
{'b':2,'a':1}|dictsort(reverse=true)
users|tojson
1e16
123456789012345680.0
1.5e300
-0.0
f * 2
n / 7
10 / 4
9 // 2.0
7.5 % 2
2 ** 3 ** 2
-2 ** 2
'a' 'b'
"tab\\there"
"""

STATEMENTS = [
    "{% set x = 5 %}{{ x }}",
    "{% set x, y = 1, 2 %}{{ x + y }}",
    "{% set x %}block {{ n }}{% endset %}{{ x }}",
    "{% set x | upper %}block{% endset %}{{ x }}",
    "{% set ns = namespace(a=1, b='x') %}{% set ns.a = ns.a + 1 %}{{ ns.a }}{{ ns.b }}",
    "{% for i in items %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }} {% endfor %}",
    "{% for i in items if i > 1 %}{{ i }}{{ loop.index }} {% endfor %}",
    "{% for i in empty %}x{% else %}none{% endfor %}",
    "{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}",
    "{% for k in d %}{{ k }}{% endfor %}",
    "{% for c in s %}{{ c }}.{% endfor %}",
    "{% for a, b in [[1, 2], [3, 4]] %}{{ a }}{{ b }} {% endfor %}",
    "{% for i in items %}{% if i == 1 %}{% continue %}{% endif %}{{ i }}{% endfor %}",
    "{% for i in items %}{% if i == 1 %}{% break %}{% endif %}{{ i }}{% endfor %}",
    "{% for i in items %}{{ loop.previtem }}|{{ loop.nextitem }} {% endfor %}",
    "{% for i in items %}{{ loop.cycle('a', 'b') }}{% endfor %}",
    "{% for i in [1, 1, 2] %}{{ loop.changed(i) }} {% endfor %}",
    "{% for i in items %}{% for j in [1] %}{{ loop.index }}{{ loop.depth }}{% endfor %}{% endfor %}",
    "{% for i in [[1], [2, [3]]] recursive %}{{ loop(i) if i is iterable else i }}{% endfor %}",
    "{% set x = 0 %}{% for i in items %}{% set x = i %}{% endfor %}{{ x }}",
    "{% if n > 40 %}a{% elif n %}b{% else %}c{% endif %}",
    "{% if zz %}a{% elif not zz %}b{% endif %}",
    "{% macro m(a, b='y') %}{{ a }}{{ b }}{% endmacro %}{{ m('x') }}{{ m('x', 'z') }}{{ m(a='q', b='r') }}",
    "{% macro m(a) %}[{{ a }}{{ caller() }}]{% endmacro %}{% call m('x') %}in{% endcall %}",
    "{% macro m(x) %}{% if x %}{{ m(x - 1) }}{% endif %}{{ x }}{% endmacro %}{{ m(3) }}",
    "{% macro m(a) %}  {{ a }}  {% endmacro %}{{ m('x') | trim }}",
    "{% filter upper %}abc{% endfilter %}",
    "{% with a = 1 %}{{ a }}{% endwith %}{{ a }}",
    "{% raw %}{{ x }}{% endraw %}",
    "{# comment #}a{# another\n#}b",
    "a\n  {% if yes %}\n  b\n  {% endif %}\nc",
    "a\n  {%- if yes -%}\n  b\n  {%- endif -%}\nc",
    "a\n  {%+ if yes %}\n  b\n  {%+ endif %}\nc",
    "a {{- n -}} b",
    "{{ n }}\n{{ n }}\n",
    "\n\n{{ n }}\n\n",
    "{%- generation %}x{% endgeneration -%}  y",
    "{% generation %}\nx\n{%- endgeneration %}\ny",
    "{{ '{% generation %}' }}",
    "{{ '%s' % 'in {{ braces }}' }}",
    "{% set x = '%s-%s' % (n, s) %}{{ x }}",
    "{% if '%s' % n == '42' %}yes{% endif %}",
    "{{ {'a': '%s' % n, 'b': ['%s' % s]}['a'] }}",
    "{{ 'a%sb' % none }} 5 % 3 = {{ 5 % 3 }}",
    "{{ ('%s %s' % (s|lower, d.c.x)) ~ '!' }}",
    "{% autoescape false %}{{ '<' }}{% endautoescape %}",
    "{{ strftime_now('%d %B %Y') }}",
    "{{ strftime_now('%Y-%m-%dT%H:%M:%S %a %A %b %j %p %I %y %%') }}",
    "{% set m = users[0] %}{{ m['name'] }}{{ m.get('zip', '') }}",
    "{{ users[0].name ~ users|length }}",
    "{% set a = [] %}{% set a = a + [1] %}{{ a }}",
    "{% set c = {'x': 1} %}{% set c = dict(c, y=2) %}{{ c }}",
    "{% set ns = namespace() %}{% set ns.list = [] %}{% for i in items %}{% set ns.list = ns.list + [i * 2] %}{% endfor %}{{ ns.list }}",
    "{% do items %}",
    "{% include 'x' %}",
    "{% extends 'x' %}",
    "{% import 'x' as y %}",
    "{% for x in range(3) -%}\n  {{ x }}\n{%- endfor %}",
    "{% for x in items %}\n{{ x }}\n{% endfor %}\nend",
    "{{ users | map(attribute='name') | join(', ') | upper }}",
    "{{ (items | join(','))[0] }}",
    "{{ [1,2,3] | map('string') | join }}",
    "{%- set roles = {'user': 'U', 'assistant': 'A'} -%}{% for u in users %}{{ roles[u.role] }}{% endfor %}",
    "{% for u in users %}{{ u.role if loop.first or u.role != loop.previtem.role }}{% endfor %}",
    "{{ 'x' if none else '' }}{{ 'y' if 0 else 'z' }}",
    "{{ n if n is defined else 'x' }}",
    "{% set x = none %}{% if x is none %}n{% endif %}",
    "{%- macro show(v) -%}{%- if v is mapping -%}{ {%- for k, w in v|dictsort -%}{{ k }}:{{ show(w) }}{{ ',' if not loop.last }}{%- endfor -%} }{%- elif v is sequence and v is not string -%}[{%- for w in v -%}{{ show(w) }}{{ ',' if not loop.last }}{%- endfor -%}]{%- else -%}{{ v }}{%- endif -%}{%- endmacro -%}{{ show(d) }}",
]


def expressions():
    env = environment()
    sources = ["{{ " + line + " }}" for line in EXPRESSIONS.strip().split("\n")] + STATEMENTS
    cases = []
    for source in sources:
        try:
            cases.append({"source": source, "text": env.from_string(source).render(**VARIABLES)})
        except Exception as error:
            cases.append({"source": source, "error": f"{type(error).__name__}: {error}"})
    write(DATA / "expressions.json", {"unix_seconds": FIXED_SECONDS, "variables": VARIABLES, "cases": cases})


# ------------------------------------------------------------------------------------------------------------ families

DEEPSEEK = """{%- if not add_generation_prompt is defined %}{% set add_generation_prompt = false %}{% endif -%}
{%- set ns = namespace(is_first=false, is_tool=false, is_output_first=true, system_prompt='') -%}
{%- for message in messages %}{%- if message['role'] == 'system' %}{% set ns.system_prompt = message['content'] %}{%- endif %}{%- endfor -%}
{{ bos_token }}{{ ns.system_prompt }}
{%- if tools %}{{ '\n## Functions\n' }}{% for tool in tools %}{{ '- ' ~ tool.function.name ~ ': ' ~ tool.function.parameters | tojson ~ '\n' }}{% endfor %}{% endif -%}
{%- for message in messages %}
{%- if message['role'] == 'user' %}{%- set ns.is_tool = false -%}{{ '<|User|>' + message['content'] }}{%- endif %}
{%- if message['role'] == 'assistant' and message['tool_calls'] is defined and message['tool_calls'] is not none %}
{%- set ns.is_tool = false -%}
{%- for tool in message['tool_calls'] %}
{%- if loop.first %}{{ '<|Assistant|><|calls|>' }}{% else %}{{ '\n' }}{% endif -%}
{{ '<|call|>' + tool['type'] + '<|sep|>' + tool['function']['name'] + '\n```json\n' + (tool['function']['arguments'] | tojson) + '\n```<|/call|>' }}
{%- endfor %}{{ '<|/calls|>' + eos_token }}
{%- elif message['role'] == 'assistant' %}
{%- if ns.is_tool %}{{ '<|/outputs|>' + message['content'] + eos_token }}{% set ns.is_tool = false %}
{%- else %}{% set content = message['content'] %}{% if '</think>' in content %}{% set content = content.split('</think>')[-1] %}{% endif %}{{ '<|Assistant|>' + content + eos_token }}{%- endif %}
{%- endif %}
{%- if message['role'] == 'tool' %}
{%- if not ns.is_tool %}{{ '<|outputs|>' }}{% endif %}{% set ns.is_tool = true %}{{ '<|output|>' + message['content'] + '<|/output|>' }}
{%- endif %}
{%- endfor -%}
{%- if ns.is_tool %}{{ '<|/outputs|>' }}{% endif %}
{%- if add_generation_prompt and not ns.is_tool %}{{ '<|Assistant|>' }}{% if thinking is defined and thinking %}{{ '<think>\n' }}{% endif %}{% endif %}"""

PHI = """{% for message in messages %}{% if message['role'] == 'system' and 'tools' in message and message['tools'] is not none %}{{ '<|' + message['role'] + '|>' + message['content'] + '<|tool|>' + message['tools'] + '<|/tool|>' + '<|end|>' }}{% else %}{{ '<|' + message['role'] + '|>' + message['content'] + '<|end|>' }}{% endif %}{% endfor %}{% if add_generation_prompt %}{{ '<|assistant|>' }}{% else %}{{ eos_token }}{% endif %}"""

COMMAND = """{{ bos_token }}
{%- macro document_turn(documents) -%}
{%- for doc in documents %}{{ loop.index0 }}: {{ doc.title }}{% if not loop.last %}, {% endif %}{% endfor %}
{%- endmacro -%}
{%- set ns = namespace(call_id=0, regen_id=0) -%}
{%- macro calls_of(message) -%}
[{% for call in message.tool_calls %}
    {"tool_call_id": "{{ ns.call_id }}", "tool_name": {{ call['function']['name'] | tojson }}, "parameters": {{ call['function']['arguments'] | tojson }}}{% if not loop.last %},{% endif %}
{% set ns.call_id = ns.call_id + 1 %}
{% endfor %}]
{%- endmacro -%}
<|START|><|SYSTEM|># Preamble
{% if tools %}
## Tools
```json
[
{% for tool in tools %}
    {"name": "{{ tool['function']['name'] }}", "description": "{{ tool['function']['description'] }}", "parameters": {{ tool['function']['parameters'] | tojson }}, "responses": null}{%- if not loop.last %},{% endif %}

{% endfor %}
]
```
{% endif %}
{%- if messages[0]['role'] | lower == 'system' %}{%- set developer = messages[0]['content'] -%}{%- set messages = messages[1:] -%}{% else %}{%- set developer = '' -%}{% endif %}
{%- if developer %}
# Developer
{{ developer }}
{%- endif %}<|END|>
{%- for message in messages -%}
{%- if message.role | lower == 'user' -%}<|START|><|USER|>{{ message.content }}<|END|>
{%- elif message.role | lower in ['assistant', 'chatbot'] -%}<|START|><|BOT|>{% if message.tool_calls %}<|ACTION|>{{ calls_of(message) }}<|/ACTION|>{% else %}<|RESPONSE|>{{ message.content }}<|/RESPONSE|>{% endif %}<|END|>
{%- elif message.role | lower == 'tool' -%}<|START|><|SYSTEM|><|RESULT|>{{ {'tool_call_id': ns.regen_id | string, 'results': {'0': message.content}} | tojson }}<|/RESULT|><|END|>{%- set ns.regen_id = ns.regen_id + 1 -%}
{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}<|START|><|BOT|>{%- endif -%}"""

GLM = """[gMASK]<sop>
{%- if tools -%}
<|system|>
# Tools

<tools>
{% for tool in tools %}
{{ tool | tojson(ensure_ascii=False) }}
{% endfor %}
</tools>{%- endif -%}
{%- macro visible(content) -%}
    {%- if content is string -%}{{- content }}
    {%- elif content is iterable and content is not mapping -%}
        {%- for item in content -%}{%- if item is mapping and item.type == 'text' -%}{{- item.text }}{%- elif item is string -%}{{- item }}{%- endif -%}{%- endfor -%}
    {%- else -%}{{- content }}{%- endif -%}
{%- endmacro -%}
{%- set ns = namespace(last_user_index=-1) %}
{%- for m in messages %}{%- if m.role == 'user' %}{% set ns.last_user_index = loop.index0 -%}{%- endif %}{%- endfor %}
{% for m in messages %}
{%- if m.role == 'user' -%}<|user|>
{{ visible(m.content) }}
{{- '/nothink' if (enable_thinking is defined and not enable_thinking and not visible(m.content).endswith("/nothink")) else '' -}}
{%- elif m.role == 'assistant' -%}
<|assistant|>
{%- set reasoning = '' %}
{%- set content = visible(m.content) %}
{%- if m.reasoning_content is string %}{%- set reasoning = m.reasoning_content %}
{%- else %}{%- if '</think>' in content %}{%- set reasoning = content.split('</think>')[0].rstrip('\n').split('<think>')[-1].lstrip('\n') %}{%- set content = content.split('</think>')[-1].lstrip('\n') %}{%- endif %}{%- endif %}
{%- if loop.index0 > ns.last_user_index and reasoning -%}
{{ '\n<think>' + reasoning.strip() + '</think>' }}
{%- else -%}
{{ '\n<think></think>' }}
{%- endif -%}
{%- if content.strip() -%}
{{ '\n' + content.strip() }}
{%- endif -%}
{% if m.tool_calls %}
{% for tc in m.tool_calls %}
{%- if tc.function %}{%- set tc = tc.function %}{%- endif %}
{{ '\n<tool_call>' + tc.name }}
{% set _args = tc.arguments %}
{% for k, v in _args.items() %}
<arg_key>{{ k }}</arg_key>
<arg_value>{{ v | tojson(ensure_ascii=False) if v is not string else v }}</arg_value>
{% endfor %}
</tool_call>{% endfor %}
{% endif %}
{%- elif m.role == 'tool' -%}
{%- if m.content is string -%}
{%- if loop.first or (messages[loop.index0 - 1].role != "tool") %}
    {{- '<|observation|>' }}
{%- endif %}
{{- '\n<tool_response>\n' }}
{{- m.content }}
{{- '\n</tool_response>' }}
{%- else -%}
<|observation|>{% for tr in m.content %}

<tool_response>
{{ tr.output if tr.output is defined else tr }}
</tool_response>{% endfor -%}
{% endif -%}
{%- elif m.role == 'system' -%}
<|system|>
{{ visible(m.content) }}
{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}
<|assistant|>{{- '\n<think></think>' if (enable_thinking is defined and not enable_thinking) else '' -}}
{%- endif -%}"""

HARMONY = """{%- macro type_of(spec) -%}
    {%- if spec.type == "array" -%}{{- type_of(spec['items']) + "[]" if spec['items'] else "any[]" }}
    {%- elif spec.type is defined and spec.type is iterable and spec.type is not string and spec.type is not mapping -%}{{- spec.type | join(" | ") }}
    {%- elif spec.enum -%}{{- '"' + spec.enum|join('" | "') + '"' -}}
    {%- elif spec.type == "integer" -%}{{- "number" }}
    {%- elif spec.type == "object" -%}{{- "object" }}
    {%- else -%}{{- spec.type }}{%- endif -%}
{%- endmacro -%}
{%- macro namespace_of(name, tools) -%}
    {{- "## " + name + "\n\nnamespace " + name + " {\n\n" }}
    {%- for tool in tools %}
        {%- set tool = tool.function %}
        {{- "// " + tool.description + "\ntype " + tool.name + " = " }}
        {%- if tool.parameters and tool.parameters.properties %}
            {{- "(_: {\n" }}
            {%- for key, spec in tool.parameters.properties.items() %}
                {{- key }}{%- if key not in (tool.parameters.required or []) %}{{- "?" }}{%- endif -%}
                {{- ": " }}{{- type_of(spec) }}
                {%- if spec.default is defined -%}{{- ", // default: " + spec.default|string }}{%- endif -%}
                {{- ",\n" }}
            {%- endfor %}
            {{- "}) => any;\n\n" }}
        {%- else -%}
            {{- "() => any;\n\n" }}
        {%- endif -%}
    {%- endfor %}
    {{- "} // namespace " + name }}
{%- endmacro -%}
{{- "<|start|>system<|message|>Knowledge: 2024\nDate: " + date_string + "\n\nReasoning: " + (reasoning_effort or "medium") }}
{%- if tools %}{{- "\nCalls to these tools go to: 'functions'." }}{%- endif %}
{{- "<|end|>" }}
{%- if messages[0].role == "developer" or messages[0].role == "system" %}
    {%- set developer_message = messages[0].content %}{%- set loop_messages = messages[1:] %}
{%- else %}
    {%- set developer_message = "" %}{%- set loop_messages = messages %}
{%- endif %}
{%- if developer_message or tools %}
    {{- "<|start|>developer<|message|>" }}
    {%- if developer_message %}{{- "# Instructions\n\n" + developer_message + "\n\n" }}{%- endif %}
    {%- if tools -%}{{- "# Tools\n\n" }}{{- namespace_of("functions", tools) }}{%- endif -%}
    {{- "<|end|>" }}
{%- endif %}
{%- set last_tool_call = namespace(name=none) %}
{%- for message in loop_messages -%}
    {%- if message.role == 'assistant' -%}
        {%- if "tool_calls" in message %}
            {%- set future = namespace(found=false) %}
            {%- for after in loop_messages[loop.index:] %}{%- if after.role == 'assistant' and "tool_calls" not in after %}{%- set future.found = true %}{%- endif %}{%- endfor %}
            {%- set tool_call = message.tool_calls[0] %}
            {%- if tool_call.function %}{%- set tool_call = tool_call.function %}{%- endif %}
            {%- if message.thinking and not future.found %}{{- "<|start|>assistant<|channel|>analysis<|message|>" + message.thinking + "<|end|>" }}{%- endif %}
            {{- "<|start|>assistant to=functions." + tool_call.name + "<|channel|>commentary json<|message|>" }}
            {{- tool_call.arguments|tojson }}{{- "<|call|>" }}
            {%- set last_tool_call.name = tool_call.name %}
        {%- elif loop.last and not add_generation_prompt %}
            {%- if "thinking" in message %}{{- "<|start|>assistant<|channel|>analysis<|message|>" + message.thinking + "<|end|>" }}{%- endif %}
            {{- "<|start|>assistant<|channel|>final<|message|>" + message.content + "<|return|>" }}
        {%- else %}
            {{- "<|start|>assistant<|channel|>final<|message|>" + message.content + "<|end|>" }}
            {%- set last_tool_call.name = none %}
        {%- endif %}
    {%- elif message.role == 'tool' -%}
        {%- if last_tool_call.name is none %}{{- raise_exception("Message has tool role, but there was no previous assistant message with a tool call!") }}{%- endif %}
        {{- "<|start|>functions." + last_tool_call.name }}{{- " to=assistant<|channel|>commentary<|message|>" + message.content|tojson + "<|end|>" }}
    {%- elif message.role == 'user' -%}
        {{- "<|start|>user<|message|>" + message.content + "<|end|>" }}
    {%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}<|start|>assistant{%- endif -%}"""

LLAMA2 = """{% if messages[0]['role'] == 'system' %}{% set loop_messages = messages[1:] %}{% set system_message = messages[0]['content'] %}{% else %}{% set loop_messages = messages %}{% set system_message = false %}{% endif %}{% for message in loop_messages %}{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}{% endif %}{% if loop.index0 == 0 and system_message != false %}{% set content = '<<SYS>>\\n' + system_message + '\\n<</SYS>>\\n\\n' + message['content'] %}{% else %}{% set content = message['content'] %}{% endif %}{% if message['role'] == 'user' %}{{ bos_token + '[INST] ' + content.strip() + ' [/INST]' }}{% elif message['role'] == 'assistant' %}{{ ' '  + content.strip() + ' ' + eos_token }}{% endif %}{% endfor %}"""

UNICODE = [
    {"role": "system", "content": "Du bist höflich. 您好 🦀"},
    {"role": "user", "content": "İstanbul’da ﬁ e\u0301 👩‍👩‍👧 \u00a0?"},
    {"role": "assistant", "content": "日本語\nで\n\n答え <b>&amp;</b>"},
    {"role": "user", "content": "שלום \u202e עולם\t\\n"},
]

FAMILY_CHATS = ["one_turn", "system", "turns", "tools", "reasoning", "unicode", "parts", "nulls"]


def families():
    import text
    from transformers.utils.chat_template_utils import _normalize_chat_messages, render_jinja_template

    chats = text.CHATS | {
        "unicode": UNICODE,
        "parts": [{"role": "user", "content": [{"type": "text", "text": "One."}, {"type": "text", "text": "Two."}]}],
        "nulls": [
            {"role": "user", "content": "Weather?", "name": None},
            {"role": "assistant", "content": None, "tool_calls": [CALL], "reasoning_content": None},
            {"role": "tool", "content": "7", "tool_call_id": "call00001"},
        ],
    }
    sources = {
        "llama3": text.LLAMA3_TOOLS,
        "qwen3": text.QWEN3,
        "chatml": text.CHATML,
        "gemma": text.GEMMA,
        "mistral": text.MISTRAL,
        "deepseek": DEEPSEEK,
        "phi": PHI,
        "command": COMMAND,
        "glm": GLM,
        "harmony": HARMONY,
        "llama2": LLAMA2,
    }
    published = {}
    for name in ("qwen3", "llama3", "gemma3", "deepseek-v3"):
        config = json.loads((ROOT / "models/tokenizers" / name / "tokenizer_config.json").read_text())
        published[f"published {name}"] = config["chat_template"]
    named = {"bos_token": "<s>", "eos_token": "</s>"}

    def render(source, chat, tools, generate, **variables):
        chat = _normalize_chat_messages(chat)
        options = dict(date_string="26 Jul 2024", **named, **variables)
        return render_jinja_template([chat], tools=tools, chat_template=source, add_generation_prompt=generate, **options)[0][0]

    def attempt(*arguments, **options):
        try:
            return render(*arguments, **options)
        except Exception:
            return None

    cases, continued = [], []
    for name, source in (sources | published).items():
        for chat in FAMILY_CHATS:
            messages = chats[chat]
            if chat == "parts" and name not in ("gemma", "glm", "published gemma3"):
                continue
            tools = TOOLS if chat in ("tools", "nulls") else None
            for generate in (True, False):
                whole = attempt(source, messages, tools, generate)
                case = {"template": name, "chat": chat, "tools": tools is not None, "generate": generate, "text": whole}
                if whole is not None:
                    starts = [attempt(source, messages[: k + 1], tools, False) for k in range(len(messages))]
                    ends = [len(s.encode()) if s and whole.startswith(s) else None for s in starts]
                    case["ends"] = ends
                cases.append(case)
        for said in ("Sure", "Sure, ", " two\nlines \n"):
            chat = chats["system"] + [{"role": "assistant", "content": said}]
            text_of = attempt(source, chat, None, False, continue_final_message=True)
            continued.append({"template": name, "messages": chat, "text": text_of})
    write(
        DATA / "families.json",
        {"named": named, "templates": sources, "chats": chats, "tools": TOOLS, "cases": cases, "continued": continued},
    )


if __name__ == "__main__":
    expressions()
    families()
