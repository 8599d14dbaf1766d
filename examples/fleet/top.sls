base:
  '*':
    - base
  'role:database':
    - match: grain
    - database
  'role:web':
    - match: grain
    - web
  'balancer:true':
    - match: grain
    - balancer
