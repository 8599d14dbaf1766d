{% raw %}'{{ not rendered }}': test.nop{% endraw %}
