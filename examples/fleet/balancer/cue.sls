
refresh load balancers:
  trigger.fired:
    - reason: the page of a web node is new
    - watch:
      - file: {{ facts.demo_root }}/srv/www/index.html
