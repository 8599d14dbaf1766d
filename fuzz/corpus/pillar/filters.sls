a: {{ "x,y" | replace(",", ";") | upper | tojson }}
b: {{ [3,1,2] | sort | join("-") }}
c: {{ {"k": [1]} | yaml(False) }}
