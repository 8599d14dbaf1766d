{% include 'lib/snippet.jinja' %}
after: test.nop
