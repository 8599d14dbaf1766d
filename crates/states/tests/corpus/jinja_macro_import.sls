{% from 'lib/macros.jinja' import nop with context %}
{% import 'lib/macros.jinja' as macros %}
{{ nop('one') }}
{{ macros.nop('two', require='one') }}
